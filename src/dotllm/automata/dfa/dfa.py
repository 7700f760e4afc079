"""Dfa: a regular language of Unicode strings, closed under every boolean and regular operation.

``allOf``, ``not``, ``pattern`` with ``maxLength``, and look-around need these operations, which an NFA does not have. A
Dfa is always minimal and canonically numbered (see `kernels`), so equal languages are equal objects and make good memo
keys. Strings are sequences of Unicode scalar values; the complement is relative to all such strings, including those
with line breaks.

Each operation costs tens of microseconds for automata with tens of states, and takes a `Budget`; the operators
``& | - ~`` and calls without that argument use a fresh default budget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.automata.dfa.kernels import canonical, determinise, dominated_states, equivalence, product, trie
from dotllm.automata.dfa.nfa import ONE_CLASS, Alphabet, Budget, Ints, NfaArrays, joint, merge_classes, minterms
from dotllm.charset import CharSet
from dotllm.grammar import Expression, Grammar

# Paths in the table of a total automaton: a list per state, state 0 is dead.


def shortest_path(rows: Sequence[Sequence[int]], accepting: NDArray[np.bool_], start: int) -> list[int]:
    """The classes on the first of the shortest paths to an accepting state, in class order. A path must exist."""
    came = {start: (0, 0)}
    queue = [start]
    for state in queue:
        if accepting[state]:
            path = []
            while state != start:
                state, cls = came[state]
                path.append(cls)
            return path[::-1]
        for cls, to in enumerate(rows[state]):
            if to and to not in came:
                came[to] = (state, cls)
                queue.append(to)
    raise AssertionError("every state of a canonical automaton can accept")


def topological_order(rows: Sequence[Sequence[int]], start: int) -> list[int]:
    """The states reachable from ``start`` (0: none), in topological order; incomplete if some lie on a cycle."""
    arrivals = [0] * len(rows)
    for row in rows[1:]:
        for to in row:
            arrivals[to] += 1
    ready = [start] if start and not arrivals[start] else []
    for state in ready:
        for to in rows[state]:
            arrivals[to] -= 1
            if to and not arrivals[to]:
                ready.append(to)
    return ready


# Concatenation and repetition of automata, as NFAs over the same classes.
#
# A total automaton is given as (table, accepting, start): int32 [states, classes] in which state 0 is dead, bool
# [states], and the number of a state.

Total = tuple[Ints, NDArray[np.bool_], int]


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
    # A new state accepts the empty string, because the start of the first copy may lie on a loop.
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


# The words that a boolean operation keeps: bit 2·a + b for the verdicts a, b of its operands.
_AND, _OR, _MINUS = 0b1000, 0b1110, 0b0100
_KEPT_ENTRIES = 4096  # maximum number of entries of a table that is also kept as lists
_SUBSET_WORDS = 8_000_000  # maximum memory of all subsets of one determinisation, in 64-bit words
_MOST_COMPARED = 2_000  # states of an NFA that are compared with each other: a square of bits
NO_STATES = np.empty((0, 0), np.uint64)  # no state of an NFA is known to dominate others


class Dfa:
    """An immutable regular language. ``==`` and ``hash`` compare languages; ``len`` is the number of live states."""

    __slots__ = ("_columns", "_hash", "_rows", "accepting", "alphabet", "start", "table")

    alphabet: Alphabet
    table: Ints
    """int32[states, classes], total; state 0 is dead."""
    accepting: NDArray[np.bool_]
    """bool[states]"""
    start: int
    """1, or 0 for the empty language."""

    def __init__(self, alphabet: Alphabet, table: Ints, accepting: NDArray[np.bool_], start: int) -> None:
        """The automaton must be canonical; the class methods ensure this."""
        self.alphabet = alphabet
        self.table = table
        self.accepting = accepting
        self.start = start
        self._hash = 0
        self._rows: list[list[int]] | None = None

    @classmethod
    def of_table(
        cls, alphabet: Alphabet, table: Ints, accepting: NDArray[np.bool_], start: int, budget: Budget | None, what: str
    ) -> Dfa:
        """The language of a total automaton in which state 0 is dead. ``what`` names it in BudgetExceededError."""
        block, steps = equivalence(table, accepting)
        if budget is not None:
            budget.spend(steps, what)
        table, accepting, start, column = canonical(table, accepting, start, block)
        if table.shape[1] < alphabet.size:
            alphabet = merge_classes(alphabet, column)
        return cls(alphabet, table, accepting, start)

    @classmethod
    def of_nfa(cls, nfa: NfaArrays, budget: Budget, what: str = "the pattern") -> Dfa:
        """The language of ``nfa``. ``what`` names it in BudgetExceededError.

        If its sets of states are too many, those states are left out that others of a set make superfluous.
        """
        final = np.zeros(nfa.states, np.bool_)
        final[nfa.finals] = True
        size = nfa.alphabet.size
        limits = size, budget.states_over(size), budget.steps, _SUBSET_WORDS
        moves = nfa.edges, nfa.epsilons, nfa.labels
        table, accepting, steps = determinise(*moves, nfa.starts, final, NO_STATES, *limits)
        if steps > budget.steps and nfa.states <= _MOST_COMPARED and budget.retries:
            budget.retries -= 1
            dominated, compared = dominated_states(*moves, final, size, budget.steps)
            if compared <= budget.steps:
                table, accepting, steps = determinise(*moves, nfa.starts, final, dominated, *limits)
                steps += compared
        budget.spend(steps, what)
        return cls.of_table(nfa.alphabet, table, accepting, 1 if len(table) > 1 else 0, budget, what)

    # -- constructors ------------------------------------------------------------------------------------------------

    @classmethod
    def never(cls) -> Dfa:
        """The empty language."""
        return _NEVER

    @classmethod
    def anything(cls) -> Dfa:
        """All strings."""
        return _ANYTHING

    @classmethod
    def epsilon(cls) -> Dfa:
        """Only the empty string."""
        return cls.length(0, 0)

    @classmethod
    def chars(cls, charset: CharSet) -> Dfa:
        """The one-character strings of a set."""
        return _chars(charset)

    @classmethod
    def length(cls, minimum: int = 0, maximum: int | None = None, budget: Budget | None = None) -> Dfa:
        """All strings of ``minimum`` to ``maximum`` (None: any number of) code points."""
        if maximum is not None and maximum < minimum:
            return _NEVER
        budget = budget or Budget()
        if (minimum if maximum is None else maximum) + 2 > budget.states:
            lengths = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
            raise budget.exceeded(f"strings of {lengths} characters")
        return _length(minimum, maximum)

    @classmethod
    def literal(cls, text: str) -> Dfa:
        """Exactly this string; the empty language if it contains lone surrogates."""
        return cls.literals((text,))

    @classmethod
    def literals(cls, texts: Iterable[str], budget: Budget | None = None) -> Dfa:
        """Any one of many strings, as a minimal acyclic automaton. Strings with lone surrogates are left out."""
        words = sorted(text for text in set(texts) if _is_text(text))
        if not words:
            return _NEVER
        budget = budget or Budget()
        alphabet = _alphabet_of_letters("".join(sorted({char for word in words for char in word})))
        # One row of the table per character, before equal suffixes are merged.
        if sum(map(len, words)) > 4 * budget.states_over(alphabet.size):
            raise budget.exceeded(f"{len(words)} strings")
        ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
        table, accepting = trie(alphabet.encode("".join(words)), ends, alphabet.size)
        dfa = cls.of_table(alphabet, table, accepting, 1, budget, f"{len(words)} strings")
        if len(dfa) > budget.states:
            raise budget.exceeded(f"{len(words)} strings")
        return dfa

    # -- boolean operations ------------------------------------------------------------------------------------------

    def _combine(self, other: Dfa, truth: int, budget: Budget | None, what: str) -> Dfa:
        budget = budget or Budget()
        alphabet, mine, theirs = joint(self.alphabet, other.alphabet)
        a = self.table, self.accepting, self.start
        b = other.table, other.accepting, other.start
        table, accepting, steps = product(*a, *b, mine, theirs, truth, budget.states_over(alphabet.size), budget.steps)
        budget.spend(steps, what)
        return Dfa.of_table(alphabet, table, accepting, 1 if len(table) > 1 else 0, budget, what)

    def intersection(self, other: Dfa, budget: Budget | None = None) -> Dfa:
        """Strings in both languages."""
        if other is _ANYTHING or self is other:
            return self
        if self is _ANYTHING:
            return other
        return self._combine(other, _AND, budget, "an intersection")

    def union(self, other: Dfa, budget: Budget | None = None) -> Dfa:
        """Strings in either language."""
        if other.start == 0 or self is other:
            return self
        if self.start == 0:
            return other
        return self._combine(other, _OR, budget, "a union")

    def difference(self, other: Dfa, budget: Budget | None = None) -> Dfa:
        """Strings in self that are not in other."""
        if other.start == 0 or self.start == 0:
            return self
        return self._combine(other, _MINUS, budget, "a difference")

    def complement(self) -> Dfa:
        """All strings that are not in self. At most one state larger than self."""
        return Dfa.of_table(self.alphabet, self.table, ~self.accepting, self.start, None, "")

    def __and__(self, other: Dfa) -> Dfa:
        return self.intersection(other)

    def __or__(self, other: Dfa) -> Dfa:
        return self.union(other)

    def __sub__(self, other: Dfa) -> Dfa:
        return self.difference(other)

    def __invert__(self) -> Dfa:
        return self.complement()

    # -- regular operations ------------------------------------------------------------------------------------------

    def concat(self, other: Dfa, budget: Budget | None = None) -> Dfa:
        """A string of self followed by one of other."""
        if self.start == 0 or other.start == 0:
            return _NEVER
        alphabet, mine, theirs = joint(self.alphabet, other.alphabet)
        first = self.table[:, mine], self.accepting, self.start
        second = other.table[:, theirs], other.accepting, other.start
        return Dfa.of_nfa(concatenation(alphabet, first, second), budget or Budget(), "a concatenation")

    def __add__(self, other: Dfa) -> Dfa:
        return self.concat(other)

    def star(self) -> Dfa:
        """Any number of strings of self, one after another."""
        return self.repeat(0, None)

    def repeat(self, minimum: int, maximum: int | None, budget: Budget | None = None) -> Dfa:
        """``minimum`` to ``maximum`` (None: any number of) strings of self, one after another."""
        if maximum is not None and maximum < minimum:
            return _NEVER
        if maximum == 0 or self.start == 0:
            return _NEVER if minimum > 0 else Dfa.epsilon()
        budget = budget or Budget()
        copies = max(minimum, 1) if maximum is None else maximum
        if copies * len(self.table) > budget.states:
            raise budget.exceeded("a repetition")
        automaton = self.table, self.accepting, self.start
        return Dfa.of_nfa(repetition(self.alphabet, automaton, minimum, maximum), budget, "a repetition")

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[list[int]]:
        """The table as lists, for loops in Python. Do not change it. The lists of large tables are not kept, because
        they take ten times the memory."""
        rows: list[list[int]] = self.table.tolist() if self._rows is None else self._rows
        if self.table.size <= _KEPT_ENTRIES:
            self._rows = rows
        return rows

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes, including the alphabet, and the `rows` if they are kept."""
        kept = 40 * self.table.size if self.table.size <= _KEPT_ENTRIES else 0
        return self.table.nbytes + kept + 64 * (len(self.table) + len(self.alphabet.starts)) + 512

    def is_empty(self) -> bool:
        """Whether no string is in the language."""
        return self.start == 0

    def is_finite(self) -> bool:
        """Whether the language has finitely many strings."""
        return self._order() is not None

    def accepts(self, text: str) -> bool:
        """Whether ``text`` is in the language; a text with lone surrogates never is."""
        if not _is_text(text):
            return False
        starts, class_of = self.alphabet.starts, self.alphabet.class_of
        rows: Any = self.rows if self.table.size <= _KEPT_ENTRIES else self.table
        state = self.start
        for char in text:
            state = rows[state][class_of[bisect_right(starts, ord(char)) - 1]]
        return bool(self.accepting[state])

    def shortest(self) -> str | None:
        """The first of the shortest strings in code point order; None for the empty language."""
        if self.start == 0:
            return None
        path = shortest_path(self.rows, self.accepting, self.start)
        smallest, class_of = self.alphabet.starts, self.alphabet.class_of
        return "".join([chr(smallest[class_of.index(cls)]) for cls in path])

    def _order(self) -> list[int] | None:
        """The live states in topological order, or None when there is a cycle."""
        if (self.table[1:] == np.arange(1, len(self.table))[:, None]).any():
            return None  # a state leads to itself: this finds most cycles
        order = topological_order(self.rows, self.start)
        return order if len(order) == len(self) else None

    def length_bounds(self) -> tuple[int, int | None] | None:
        """(shortest, longest) length in code points, longest None when unbounded; None for the empty language."""
        shortest = self.shortest()
        if shortest is None:
            return None
        order = self._order()
        if order is None:
            return len(shortest), None
        rows = self.rows
        longest = [0] * len(self.table)
        for state in order:
            for to in rows[state]:
                longest[to] = max(longest[to], longest[state] + 1)
        return len(shortest), max(longest[state] for state in order)

    def count(self) -> int | None:
        """The exact number of strings; None if infinite."""
        order = self._order()
        if order is None:
            return None
        sizes, rows = self.alphabet.sizes, self.rows
        ways = [0] * len(self.table)
        for state in reversed(order):
            ways[state] = int(self.accepting[state]) + sum(
                size * ways[to] for size, to in zip(sizes, rows[state], strict=False) if to
            )
        return ways[self.start]

    def strings(self) -> Iterator[str]:
        """The strings in lexicographic order of code points, lazily; raises ValueError for an infinite language."""
        if self._order() is None:
            raise ValueError("the language is infinite")
        letters = [
            [(cls, chr(point)) for low, high in [bounds] for point in range(low, high + 1)]
            for bounds, cls in self._intervals()
        ]
        rows = self.rows
        flat = [pair for interval in letters for pair in interval] if self.start else []
        stack: list[tuple[int, str]] = [(self.start, "")] if self.start else []
        while stack:
            state, prefix = stack.pop()
            if self.accepting[state]:
                yield prefix
            row = rows[state]
            stack.extend((row[cls], prefix + char) for cls, char in reversed(flat) if row[cls])

    def _intervals(self) -> list[tuple[tuple[int, int], int]]:
        used = {cls for row in self.rows[1:] for cls, to in enumerate(row) if to}
        return sorted((bounds, cls) for cls in used for bounds in self.alphabet.charset(1 << cls).ranges)

    # -- identity ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.table) - 1

    def __bool__(self) -> bool:
        return self.start != 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Dfa)
            and self.table.shape == other.table.shape
            and self.alphabet == other.alphabet
            and np.array_equal(self.table, other.table)
            and np.array_equal(self.accepting, other.accepting)
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.alphabet, self.table.tobytes(), self.accepting.tobytes())) or 1
        return self._hash

    def __repr__(self) -> str:
        return f"<Dfa: {len(self)} states, {self.alphabet.size} classes, shortest {self.shortest()!r}>"


def union_of(automata: Sequence[Dfa], budget: Budget | None = None) -> Dfa:
    """The union of many languages, combined as a balanced tree."""
    budget = budget or Budget()
    level = list(automata) or [_NEVER]
    while len(level) > 1:
        pairs = [level[i].union(level[i + 1], budget) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


@lru_cache(maxsize=512)
def _alphabet_of_letters(letters: str) -> Alphabet:
    return minterms(tuple(CharSet(((ord(c), ord(c)),)) for c in letters))[0] if letters else ONE_CLASS


@lru_cache(maxsize=256)
def _chars(charset: CharSet) -> Dfa:
    if not charset:
        return _NEVER
    alphabet, inside = minterms((charset,))
    table = np.zeros((3, alphabet.size), np.int32)
    table[1] = [2 if bits else 0 for bits in inside]
    return Dfa.of_table(alphabet, table, np.array([False, False, True]), 1, None, "")


@lru_cache(maxsize=256)
def _length(minimum: int, maximum: int | None) -> Dfa:
    top = (minimum if maximum is None else maximum) + 1  # states 1..top have read 0..top-1 characters
    table = np.arange(1, top + 2, dtype=np.int32)
    table[0] = 0
    table[top] = top if maximum is None else 0
    accepting = np.zeros(top + 1, np.bool_)
    accepting[minimum + 1 :] = True
    return Dfa.of_table(ONE_CLASS, table.reshape(-1, 1), accepting, 1, None, "")


_NEVER = Dfa(ONE_CLASS, np.zeros((1, 1), np.int32), np.zeros(1, np.bool_), 0)
_ANYTHING = Dfa(ONE_CLASS, np.array([[0], [1]], np.int32), np.array([False, True]), 1)


# Dfa → Grammar: turns an automaton over characters into a network whose edges the caller spells.


def dfa_to_grammar(
    dfa: Dfa, grammar: Grammar, lower_chars: Callable[[CharSet], Expression], longest: int = 0
) -> Expression:
    """``dfa`` as one expression of ``grammar``; ``longest``, if not 0, limits the texts to that many characters, which
    the machine counts.

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
    return grammar.flat_network(head.tobytes() + finals.tobytes() + edges.tobytes(), longest)
