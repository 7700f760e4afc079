"""Nondeterministic automata over character sets: what a regular expression is built as first."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from dotllm.automata.dfa.alphabet import ONE_CLASS, Alphabet, Ints, minterms
from dotllm.automata.dfa.budget import Budget
from dotllm.automata.dfa.kernels import determinise
from dotllm.charset import MAX_CODE_POINT, CharSet

if TYPE_CHECKING:
    from dotllm.automata.dfa.dfa import Dfa

# Character classes times labels.
_MAX_MEMBERSHIPS = 16_000_000
# Memory of all subsets of one determinisation, in 64-bit words.
SUBSET_WORDS = 8_000_000


def _ints(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int32) if values else np.empty(0, np.int32)


class Nfa:
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
        """A new state. The number of states of an NFA has the limit of the DFA's; raises BudgetExceeded."""
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

    def determinise(self, what: str = "the pattern") -> Dfa:
        """The minimal DFA of the same language; raises BudgetExceeded."""
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
        return subset_construction(
            alphabet, edges, epsilons, labels, _ints(self.starts), _ints(self.finals), self.states, self.budget, what
        )


def subset_construction(
    alphabet: Alphabet,
    edges: tuple[Ints, Ints, Ints],
    epsilons: tuple[Ints, Ints],
    labels: tuple[Ints, Ints],
    starts: Ints,
    finals: Ints,
    states: int,
    budget: Budget,
    what: str,
) -> Dfa:
    """The minimal DFA of an NFA in arrays (see `kernels.determinise`); raises BudgetExceeded."""
    from dotllm.automata.dfa.dfa import Dfa

    final = np.zeros(states, np.bool_)
    final[finals] = True
    limit = budget.states_over(alphabet.size)
    table, accepting, steps = determinise(
        *edges, *epsilons, *labels, starts, final, alphabet.size, limit, budget.steps, SUBSET_WORDS
    )
    budget.spend(steps, what)
    return Dfa.of_table(alphabet, table, accepting, 1 if len(table) > 1 else 0, budget, what)
