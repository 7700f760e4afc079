"""Partitions all strings by which of many languages they belong to, with one determinisation.

Pairwise intersections of n languages and their complements take n² automata. Here one NFA has the strings of all
languages, each followed by the number of its language, in two digits that no text contains. In the deterministic
automaton, the numbers that may follow a state are the languages of the strings that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import isqrt
from typing import TypeVar

import numpy as np

from dotllm.automata.dfa.dfa import NO_STATES, Dfa
from dotllm.automata.dfa.kernels import determinise
from dotllm.automata.dfa.nfa import Alphabet, Budget, Ints, partition

_STATES, _STEPS = 40_000, 100_000_000  # limits of the joint automaton: about half a second
_SUBSET_WORDS = 16_000_000

Name = TypeVar("Name", bound=Hashable)


class Classes:
    """The joint automaton of many languages."""

    def __init__(self, languages: Sequence[Dfa], what: str) -> None:
        """Raises `BudgetExceededError` if the automaton of ``what`` is too large."""
        self._what = what
        budget = Budget(_STATES, _STEPS)
        self._alphabet, columns = _joint([dfa.alphabet for dfa in languages])
        base = isqrt(len(languages) - 1) + 1  # two digits
        table = _determinised(languages, self._alphabet, columns, base, budget, what)
        self._states = _states_of(table, self._alphabet.size, base)
        self._table = np.ascontiguousarray(table[:, : self._alphabet.size])
        self._members = {state: members for members, states in self._states.items() for state in states}
        self.nbytes = table.nbytes + 100 * len(table)

    def of(self, text: str) -> frozenset[int]:
        """The numbers of the languages that contain ``text``."""
        state = min(1, len(self._table) - 1)
        for cls in self._alphabet.encode(text).tolist():
            state = int(self._table[state, cls])
        return self._members[state]

    def parts(self, name_of: Callable[[frozenset[int]], Name]) -> dict[Name, Dfa]:
        """A partition of all strings: ``name_of`` maps the numbers of a string's languages to the name of its part.
        Raises `BudgetExceededError`."""
        ends: dict[Name, list[int]] = {}
        for members, states in self._states.items():
            ends.setdefault(name_of(members), []).extend(states)
        before, budget = _predecessors(self._table), Budget(_STATES, _STEPS)
        out = {}
        for name, states in ends.items():
            if 0 in states:  # this part also has the strings that leave the automaton: the complement of the others
                others = [state for other, of_other in ends.items() if other != name for state in of_other]
                out[name] = ~self._part(before, others, budget)
            else:
                out[name] = self._part(before, states, budget)
        return out

    def _part(self, before: Sequence[list[int]], ends: list[int], budget: Budget) -> Dfa:
        """The strings that lead to one of ``ends``, as an automaton of the states that can reach them."""
        kept = dict.fromkeys(ends)
        queue = list(ends)
        for state in queue:  # bounded: by the states
            for source in before[state]:
                if source not in kept:
                    kept[source] = None
                    queue.append(source)
        if 1 not in kept:
            return Dfa.never()
        states = np.array(sorted(kept), np.int32)
        renamed = np.zeros(len(self._table), np.int32)
        renamed[states] = np.arange(1, len(states) + 1)
        small = np.zeros((len(states) + 1, self._alphabet.size), np.int32)
        small[1:] = renamed[self._table[states]]
        accepting = np.zeros(len(states) + 1, np.bool_)
        accepting[renamed[ends]] = True
        budget.spend(small.size, self._what)
        return Dfa.of_table(self._alphabet, small, accepting, 1, budget, self._what)


def _joint(alphabets: Sequence[Alphabet]) -> tuple[Alphabet, list[Ints]]:
    """The coarsest alphabet that is finer than all, and for each alphabet its classes, by joint class."""
    distinct = list(dict.fromkeys(alphabets))
    starts = np.unique(np.concatenate([alphabet.arrays[0] for alphabet in distinct]))
    # [alphabet, start]: the class there.
    class_at = np.stack(
        [alphabet.arrays[1][np.searchsorted(alphabet.arrays[0], starts, side="right") - 1] for alphabet in distinct]
    )
    joint, keys = partition(starts.tolist(), [column.tobytes() for column in np.ascontiguousarray(class_at.T)])
    by_class = np.stack([np.frombuffer(key, np.int32) for key in keys], axis=1)
    columns = dict(zip(distinct, by_class, strict=True))
    return joint, [columns[alphabet] for alphabet in alphabets]


def _determinised(
    languages: Sequence[Dfa], alphabet: Alphabet, columns: Sequence[Ints], base: int, budget: Budget, what: str
) -> Ints:
    """The table of all languages, each followed by its number: a column for each class, then one for each digit."""
    size = alphabet.size + base
    end = sum(len(dfa.table) for dfa in languages)
    low = end + 1  # the states before the second digit
    second = np.arange(base)
    sources, labels, targets = [low + second], [alphabet.size + second], [np.full(base, end)]
    starts, first = [], 0
    for number, (dfa, column) in enumerate(zip(languages, columns, strict=True)):
        source, label = np.nonzero(dfa.table[:, column])
        finals = np.flatnonzero(dfa.accepting)
        high, low_digit = divmod(number, base)
        sources += [source + first, finals + first]
        labels += [label, np.full(len(finals), alphabet.size + high)]
        targets += [dfa.table[source, column[label]] + first, np.full(len(finals), low + low_digit)]
        if dfa.start:
            starts.append(dfa.start + first)
        first += len(dfa.table)
    source, label, target = (np.concatenate(part).astype(np.int32) for part in (sources, labels, targets))
    final = np.zeros(low + base, np.bool_)
    final[end] = True
    none = np.empty(0, np.int32)
    table, _, steps = determinise(
        (source, label, target), (none, none), (np.arange(size + 1, dtype=np.int32), np.arange(size, dtype=np.int32)),
        np.array(starts, np.int32), final, NO_STATES, size, budget.states_over(size), budget.steps, _SUBSET_WORDS,
    )  # fmt: skip
    budget.spend(steps, what)
    return table


def _states_of(table: Ints, size: int, base: int) -> dict[frozenset[int], list[int]]:
    """The states that strings lead to (0: outside all languages), by the numbers that may follow."""
    start = min(1, len(table) - 1)
    reached, queue = {start}, [start]
    within = table[:, :size]
    for state in queue:  # bounded: by the states
        for to in np.unique(within[state]).tolist():
            if to not in reached:
                reached.add(to)
                queue.append(to)
    out: dict[frozenset[int], list[int]] = {}
    known: dict[bytes, frozenset[int]] = {}
    for state in queue:
        after = table[state, size:]
        key = after.tobytes()
        members = known.get(key)
        if members is None:
            members = known[key] = frozenset(
                int(high) * base + int(low)
                for high in np.flatnonzero(after)
                for low in np.flatnonzero(table[after[high], size:])
            )
        out.setdefault(members, []).append(state)
    return out


def _predecessors(table: Ints) -> list[list[int]]:
    """For each state, the states that lead to it."""
    out: list[list[int]] = [[] for _ in range(len(table))]
    source, label = np.nonzero(table)
    for pair in np.unique(source * len(table) + table[source, label]).tolist():
        before, state = divmod(pair, len(table))
        out[state].append(before)
    return out
