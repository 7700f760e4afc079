"""Turns constraints on objects into automata over members (a member is one symbol)."""
