"""Nondeterministic automata over character sets: what a regular expression is built as first."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from dotllm.automata.dfa.alphabet import ONE_CLASS, Alphabet, Ints, minterms
from dotllm.automata.dfa.budget import Budget
from dotllm.charset import MAX_CODE_POINT, CharSet

# Character classes times labels.
_MAX_MEMBERSHIPS = 16_000_000


class NfaArrays(NamedTuple):
    """An NFA of ``states`` states over the classes of ``alphabet``. All arrays are int32.

    Label l stands for the classes ``labels[1][labels[0][l] : labels[0][l + 1]]``.
    """

    alphabet: Alphabet
    edges: tuple[Ints, Ints, Ints]
    """Source, label, target: [edges] each."""
    epsilons: tuple[Ints, Ints]
    """Source, target: [epsilon edges] each."""
    labels: tuple[Ints, Ints]
    starts: Ints
    finals: Ints
    states: int


def _ints(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int32) if values else np.empty(0, np.int32)


class NfaBuilder:
    """States 0..n-1, edges over CharSets, epsilon edges, any number of start and final states."""

    def __init__(self, budget: Budget, last: int = MAX_CODE_POINT) -> None:
        """``last``: see `alphabet.minterms`."""
        self.budget = budget
        self.last = last
        self.states = 0
        self.source, self.label, self.target = array("i"), array("i"), array("i")
        self.epsilon_source, self.epsilon_target = array("i"), array("i")
        self.starts, self.finals = array("i"), array("i")
        self._labels: dict[CharSet, int] = {}

    def state(self) -> int:
        """A new state. The number of states of an NFA has the limit of the DFA's; raises BudgetExceededError."""
        if self.states >= self.budget.states:
            raise self.budget.exceeded("the pattern")
        self.states += 1
        return self.states - 1

    def edge(self, source: int, charset: CharSet, target: int) -> None:
        """``target`` may follow ``source`` after one character out of ``charset``."""
        self.source.append(source)
        self.label.append(self._labels.setdefault(charset, len(self._labels)))
        self.target.append(target)

    def epsilon(self, source: int, target: int) -> None:
        """``target`` may follow ``source`` after nothing."""
        self.epsilon_source.append(source)
        self.epsilon_target.append(target)

    def arrays(self, what: str = "the pattern") -> NfaArrays:
        """All of it, its character sets as sets of classes. Raises BudgetExceededError, naming ``what`` it is."""
        alphabet, members = minterms(tuple(self._labels), self.last) if self._labels else (ONE_CLASS, [0])
        if alphabet.size * len(self._labels) > _MAX_MEMBERSHIPS:
            raise self.budget.exceeded(what)
        width = len(self._labels) // 8 + 1
        raw = np.frombuffer(b"".join([inside.to_bytes(width, "little") for inside in members]), np.uint8)
        inside = np.unpackbits(raw.reshape(-1, width), axis=1, bitorder="little")
        label, classes = np.nonzero(inside.T[: len(self._labels)])
        starts = np.searchsorted(label, np.arange(len(self._labels) + 1)).astype(np.int32)
        edges = _ints(self.source), _ints(self.label), _ints(self.target)
        epsilons = _ints(self.epsilon_source), _ints(self.epsilon_target)
        labels = starts, classes.astype(np.int32)
        return NfaArrays(alphabet, edges, epsilons, labels, _ints(self.starts), _ints(self.finals), self.states)
