"""Dfa → Grammar: an automaton over characters as a network whose edges the caller spells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dotllm.automata.dfa.dfa import Dfa
from dotllm.charset import CharSet
from dotllm.grammar import Expression, Grammar


def dfa_to_grammar(dfa: Dfa, grammar: Grammar, lower_chars: Callable[[CharSet], Expression]) -> Expression:
    """``dfa`` as one expression of ``grammar``.

    ``lower_chars`` gives the spelling of one character out of a set: ``grammar.chars`` for plain text, an alternative
    of raw and escaped forms inside a JSON string. It is called once per distinct set. The states are those of the
    minimal automaton, so the expression of a language does not depend on how it was computed.
    """
    if dfa.start == 0:
        return grammar.never()
    sources, classes = np.nonzero(dfa.table)
    if not len(sources):
        return grammar.empty()
    states = len(dfa.table)
    # One edge per pair of states, with a set of classes as bits: sort the transitions by pair, cut where it changes.
    pairs = sources * states + dfa.table[sources, classes]
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    firsts = np.concatenate(([0], np.flatnonzero(pairs[1:] != pairs[:-1]) + 1))
    bits = np.array([1 << cls for cls in range(dfa.alphabet.size)], np.int64 if dfa.alphabet.size < 63 else object)
    sets, number = np.unique(np.bitwise_or.reduceat(bits[classes[order]], firsts), return_inverse=True)
    spelled = np.array([lower_chars(dfa.alphabet.charset(int(members))) for members in sets.tolist()], np.int32)
    edge_source, edge_target = np.divmod(pairs[firsts], states)
    edges = np.stack((edge_source, spelled[number], edge_target), axis=1).astype(np.int32)
    finals = np.flatnonzero(dfa.accepting).astype(np.int32)
    head = np.array((states, dfa.start, len(finals)), np.int32)
    return grammar.flat_network(head.tobytes() + finals.tobytes() + edges.tobytes())
