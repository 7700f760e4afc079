"""Concatenation, repetition and reversal of automata, as NFAs over the same classes.

A total automaton is given as (table, accepting, start): int32 [states, classes] in which state 0 is dead, bool
[states], and the number of a state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dotllm.automata.dfa.alphabet import Alphabet, Ints
from dotllm.automata.dfa.nfa import NfaArrays

Total = tuple[Ints, NDArray[np.bool_], int]

_NOTHING = np.empty(0, np.int32)


def concatenation(alphabet: Alphabet, first: Total, second: Total) -> NfaArrays:
    """A string of ``first``, followed by one of ``second``."""
    shift = len(first[0])
    source, label, target = _edges(first[0])
    source_2, label_2, target_2 = _edges(second[0])
    finals = _numbers(first[1])
    edges = (
        np.concatenate((source, source_2 + shift)),
        np.concatenate((label, label_2)),
        np.concatenate((target, target_2 + shift)),
    )
    epsilons = finals, np.full(len(finals), second[2] + shift, np.int32)
    starts, ends = np.array([first[2]], np.int32), _numbers(second[1]) + np.int32(shift)
    return NfaArrays(alphabet, edges, epsilons, _identity(alphabet.size), starts, ends, shift + len(second[0]))


def repetition(alphabet: Alphabet, automaton: Total, minimum: int, maximum: int | None) -> NfaArrays:
    """``minimum`` to ``maximum`` > 0 (None: any number of) strings of ``automaton``, one after another."""
    table, accepting, start = automaton
    n = len(table)
    copies = max(minimum, 1) if maximum is None else maximum
    source, label, target = _edges(table)
    shift = np.repeat(np.arange(copies, dtype=np.int32) * n, len(source))
    edges = np.tile(source, copies) + shift, np.tile(label, copies), np.tile(target, copies) + shift
    finals = _numbers(accepting)
    ends = (np.arange(copies, dtype=np.int32)[:, None] * n + finals).ravel()  # the final states of all copies
    before_last = ends[: len(ends) - len(finals)]
    epsilon_source, epsilon_target = before_last, before_last // n * n + n + start
    if maximum is None:  # the last copy loops
        last = ends[len(before_last) :]
        epsilon_source = np.concatenate((epsilon_source, last))
        epsilon_target = np.concatenate((epsilon_target, np.full(len(last), (copies - 1) * n + start)))
    # A state of its own accepts the empty string: the start of the first copy may lie on a loop.
    empty = [copies * n] if minimum == 0 else []
    return NfaArrays(
        alphabet,
        edges,
        (epsilon_source, epsilon_target.astype(np.int32)),
        _identity(alphabet.size),
        np.array([start, *empty], np.int32),
        np.concatenate((ends[max(minimum - 1, 0) * len(finals) :], np.array(empty, np.int32))),
        copies * n + 1,
    )


def reversal(alphabet: Alphabet, automaton: Total) -> NfaArrays:
    """The strings of ``automaton`` read backwards."""
    table, accepting, start = automaton
    source, label, target = _edges(table)
    ends = np.array([start] if start else [], np.int32)
    labels = _identity(alphabet.size)
    return NfaArrays(
        alphabet, (target, label, source), (_NOTHING, _NOTHING), labels, _numbers(accepting), ends, len(table)
    )


def _numbers(states: NDArray[np.bool_]) -> Ints:
    return np.flatnonzero(states).astype(np.int32)


def _edges(table: Ints) -> tuple[Ints, Ints, Ints]:
    """(source, class, target) of all edges between live states."""
    source, label = np.nonzero(table)
    return source.astype(np.int32), label.astype(np.int32), table[source, label]


@lru_cache(maxsize=256)
def _identity(classes: int) -> tuple[Ints, Ints]:
    """Labels that are the classes themselves."""
    return np.arange(classes + 1, dtype=np.int32), np.arange(classes, dtype=np.int32)
