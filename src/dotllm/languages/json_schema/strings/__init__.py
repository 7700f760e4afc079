"""Strings: their languages (patterns, formats, lengths), and the automata of their JSON texts."""
