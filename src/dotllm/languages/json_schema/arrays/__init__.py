"""Constraints on arrays, their algebra, and their automata over items (an item is one symbol)."""
