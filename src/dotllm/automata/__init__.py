"""Automata: the DFA algebra, the lowering of a grammar to an NFA, and the machine that determinises the NFA lazily."""
