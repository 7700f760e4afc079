"""Constraints on objects, their algebra, and their automata over members (a member is one symbol)."""
