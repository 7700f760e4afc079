"""Automata: the DFA algebra, a grammar as an NFA, and the machine that determinises it lazily."""
