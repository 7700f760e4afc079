"""Look-around and word boundaries in the DFA algebra: an expression with assertions still has a regular language.

Every assertion i gets a *mark*, a code point beyond Unicode, and is read as if its mark were in the text at that
position. The language of marked texts is restricted to texts in which every mark is at a position where its assertion
holds; then the marks are erased:

    erase( marked − bad_1 − … − bad_k ),    bad_i = marked texts with a mark i where assertion i fails

``bad`` is itself an expression over marked texts: for ``(?!x)`` it is ``.* MARK x .*``, for ``(?=x)`` it is ``.* MARK
.*`` with one distinguished mark, minus ``.* MARK x .*``. The other marks may be anywhere in it (loops at every
state of its NFA). Assertions inside x are solved in the same way first, with marks of their own and on the whole
text, so they see the text outside x: any nesting is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.automata.dfa import Budget, Dfa, NfaBuilder
from dotllm.automata.dfa.nfa import Alphabet, Ints, NfaArrays, joint, minterms
from dotllm.charset import MAX_CODE_POINT, CharSet
from dotllm.errors import BudgetExceededError
from dotllm.languages.regex.syntax import (
    ANY,
    ANY_TEXT,
    Alt,
    Assertion,
    AssertionKind,
    Chars,
    Empty,
    Look,
    Never,
    Node,
    Repeat,
    Seq,
    Text,
    alt,
    chars,
    charset_of,
    children,
    repeat,
    seq,
)

# Syntax tree → `NfaBuilder` (Thompson, 1968), for the parts of an expression that need the DFA algebra.


def size(node: Node) -> int:
    """The approximate number of states that `connect` makes for ``node``."""
    if isinstance(node, Text):
        return len(node.text)
    if isinstance(node, Repeat):
        return (1 + size(node.body)) * (max(node.minimum, 1) if node.maximum is None else node.maximum)
    return (len(node.parts) if isinstance(node, Seq) else 0) + sum(map(size, children(node)))


def plain_automaton(
    node: Node,
    budget: Budget,
    last: int = MAX_CODE_POINT,
    assertion: Callable[[Node], CharSet] | None = None,
    loops: CharSet | None = None,
) -> Dfa:
    """The language of an expression, in which assertions are characters of their own; raises BudgetExceededError.

    ``assertion`` gives the mark that stands for an assertion; ``loops`` are the marks that may be read anywhere, and
    ``last`` is the largest mark.
    """
    if size(node) > budget.states:
        raise budget.exceeded("the pattern")
    nfa = NfaBuilder(budget, last)
    start, end = nfa.state(), nfa.state()
    nfa.starts.append(start)
    nfa.finals.append(end)
    connect(nfa, node, start, end, assertion)
    if loops:
        for state in range(nfa.states):
            nfa.edge(state, loops, state)
    return Dfa.of_nfa(nfa.arrays(), budget)


def connect(
    nfa: NfaBuilder, node: Node, start: int, end: int, assertion: Callable[[Node], CharSet] | None = None
) -> None:
    """Build ``node`` between states ``start`` and ``end``. Repetitions are unrolled."""
    if isinstance(node, Text):
        at = start
        for char in node.text[:-1]:
            following = nfa.state()
            nfa.edge(at, CharSet(((ord(char), ord(char)),)), following)
            at = following
        last = ord(node.text[-1])
        nfa.edge(at, CharSet(((last, last),)), end)
    elif isinstance(node, Chars):
        nfa.edge(start, node.charset, end)
    elif isinstance(node, Seq):
        at = start
        for part in node.parts[:-1]:
            following = nfa.state()
            connect(nfa, part, at, following, assertion)
            at = following
        connect(nfa, node.parts[-1], at, end, assertion)
    elif isinstance(node, Alt):
        for choice in node.choices:
            connect(nfa, choice, start, end, assertion)
    elif isinstance(node, Repeat):
        _repeat(nfa, node, start, end, assertion)
    elif isinstance(node, Empty):
        nfa.epsilon(start, end)
    elif not isinstance(node, Never):
        if assertion is None:
            raise AssertionError(f"{type(node).__name__} in a plain expression")
        nfa.edge(start, assertion(node), end)


def _repeat(nfa: NfaBuilder, node: Repeat, start: int, end: int, assertion: Callable[[Node], CharSet] | None) -> None:
    at = start
    copies = node.minimum if node.maximum is not None else max(node.minimum - 1, 0)
    for _ in range(copies):
        following = nfa.state()
        connect(nfa, node.body, at, following, assertion)
        at = following
    if node.maximum is None:
        # The loop needs states of its own: ``at`` and ``end`` may lie on other loops.
        enter = nfa.state()
        leave = nfa.state() if node.minimum else enter
        nfa.epsilon(at, enter)
        connect(nfa, node.body, enter, leave, assertion)
        if node.minimum:
            nfa.epsilon(leave, enter)
        nfa.epsilon(leave, end)
        return
    for _ in range(node.maximum - node.minimum):
        following = nfa.state()
        nfa.epsilon(at, end)
        connect(nfa, node.body, at, following, assertion)
        at = following
    nfa.epsilon(at, end)


_MAX_MARKS = 128
_LAST = MAX_CODE_POINT + _MAX_MARKS

# Sets of marks, which are code points; CharSet's operations know only Unicode.
_Marks = frozenset[int]

# The identity of an assertion: those of one kind and word set are equal; a look-around equals only itself.
_Key = tuple[AssertionKind, CharSet] | Look


def automaton(node: Node, budget: Budget) -> Dfa:
    """The language of an expression, matched against whole texts; raises BudgetExceededError."""
    try:
        return _without_marks(_Solver(budget).solve(node, frozenset()))
    except BudgetExceededError as error:
        times: dict[_Key, int] = {}
        _count_assertions(node, 1, times)
        if error.keyword != "budget" or not times:
            raise
        # The operations that solve assertions mean nothing to the author of the pattern.
        names = sorted({"look-around" if isinstance(key, Look) else key[0].value for key in times})
        raise budget.exceeded(f"a pattern with {', '.join(names)}") from None


class _Solver:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._numbers = count(1)

    def _new_mark(self) -> int:
        number = next(self._numbers)
        if number > _MAX_MARKS:
            raise BudgetExceededError("too many look-around assertions", keyword="look-around")
        return MAX_CODE_POINT + number

    def solve(self, node: Node, loops: _Marks, own: _Marks = frozenset()) -> Dfa:
        """The language of ``node``, which reads the marks ``own``; the marks ``loops`` may stand anywhere."""
        times: dict[_Key, int] = {}
        _count_assertions(node, 1, times)
        if not times:
            return self._plain(node, loops)
        marks = {key: self._new_mark() for key in times}
        language = self._plain(node, loops, lambda assertion: _charset(marks[_key(assertion)]))
        everywhere = loops.union(own, marks.values())
        for key, mark in marks.items():
            # A mark that occurs at most once in a text need not be told apart from a second occurrence.
            others = everywhere - {mark} if times[key] == 1 else everywhere
            language = language.difference(self._bad(key, mark, others), self.budget)
        for mark in marks.values():
            language = self._rename(language, mark, None)
        return language

    def _plain(self, node: Node, loops: _Marks, mark: Callable[[Node], CharSet] | None = None) -> Dfa:
        return plain_automaton(node, self.budget, _LAST, mark, _charset(*loops) if loops else None)

    def _bad(self, key: _Key, mark: int, others: _Marks) -> Dfa:
        """Marked texts in which ``mark`` stands at least once where its assertion fails."""
        if not isinstance(key, Look):
            return self._plain(_where_assertion_fails(*key, Chars(_charset(mark))), others)
        single = charset_of(key.body)
        if single is not None:
            return self._plain(_where_char_fails(key, single, Chars(_charset(mark))), others)
        if key.negated:
            return self.solve(_where_body_matches(key, Chars(_charset(mark))), others, frozenset((mark,)))
        distinguished = mark if mark not in others else self._new_mark()
        own = frozenset((distinguished,))
        matches = self.solve(_where_body_matches(key, Chars(_charset(distinguished))), others, own)
        anywhere = self._plain(seq([ANY_TEXT, Chars(_charset(distinguished)), ANY_TEXT]), others)
        fails = anywhere.difference(matches, self.budget)
        return fails if distinguished == mark else self._rename(fails, distinguished, mark)

    def _rename(self, dfa: Dfa, mark: int, to: int | None) -> Dfa:
        """``dfa`` with one mark replaced by another, or erased (None)."""
        charsets = (_charset(mark),) if to is None else (_charset(mark), _charset(to))
        alphabet, columns, _ = joint(dfa.alphabet, minterms(charsets, _LAST)[0])
        table = dfa.table[:, columns]
        where = np.nonzero(table)
        source, label, target = _int32(where[0]), _int32(where[1]), table[where]
        marked = label == alphabet.index(mark)
        nothing = np.empty(0, np.int32)
        epsilons = nothing, nothing
        if to is None:
            epsilons = source[marked], target[marked]
            source, label, target = source[~marked], label[~marked], target[~marked]
        else:
            label[marked] = alphabet.index(to)
        classes = np.arange(alphabet.size, dtype=np.int32)
        nfa = NfaArrays(
            alphabet,
            (source, label, target),
            epsilons,
            (np.arange(alphabet.size + 1, dtype=np.int32), classes),
            np.array([dfa.start], np.int32),
            np.flatnonzero(dfa.accepting).astype(np.int32),
            len(dfa.table),
        )
        return Dfa.of_nfa(nfa, self.budget, "a look-around assertion")


def _charset(*marks: int) -> CharSet:
    return CharSet(tuple((mark, mark) for mark in sorted(marks)))


def _int32(array: NDArray[Any]) -> Ints:
    return array.astype(np.int32)


def _key(assertion: Node) -> _Key:
    if isinstance(assertion, Assertion):
        return assertion.kind, assertion.word
    assert isinstance(assertion, Look)
    return assertion


def _count_assertions(node: Node, factor: int, times: dict[_Key, int]) -> None:
    """Count how often one match of ``node`` can pass each assertion; a number above 1 means "more than once"."""
    if isinstance(node, (Assertion, Look)):
        times[_key(node)] = times.get(_key(node), 0) + factor
    if isinstance(node, Repeat) and node.maximum != 1:
        factor = 2
    for child in children(node):
        _count_assertions(child, factor, times)


def _where_body_matches(look: Look, mark: Node) -> Node:
    return seq([ANY_TEXT, mark, look.body, ANY_TEXT] if look.ahead else [ANY_TEXT, look.body, mark, ANY_TEXT])


def _where_char_fails(look: Look, charset: CharSet, mark: Node) -> Node:
    """Texts with a mark where a look-around for one character fails."""
    if look.negated:
        return _where_body_matches(look, mark)
    other = chars(~charset)
    if look.ahead:
        return seq([ANY_TEXT, mark, repeat(seq([other, ANY_TEXT]), 0, 1)])
    return seq([repeat(seq([ANY_TEXT, other]), 0, 1), mark, ANY_TEXT])


def _where_assertion_fails(kind: AssertionKind, word: CharSet, mark: Node) -> Node:
    if kind is AssertionKind.START:
        return seq([ANY_TEXT, ANY, mark, ANY_TEXT])
    if kind is AssertionKind.END:
        return seq([ANY_TEXT, mark, ANY, ANY_TEXT])
    other = chars(~word)
    word_before, word_after = seq([ANY_TEXT, chars(word)]), seq([chars(word), ANY_TEXT])
    none_before = repeat(seq([ANY_TEXT, other]), 0, 1)
    none_after = repeat(seq([other, ANY_TEXT]), 0, 1)
    if kind is AssertionKind.WORD_BOUNDARY:
        return alt([seq([word_before, mark, word_after]), seq([none_before, mark, none_after])])
    return alt([seq([word_before, mark, none_after]), seq([none_before, mark, word_after])])


def _without_marks(dfa: Dfa) -> Dfa:
    """``dfa``, which no longer reads marks, over the alphabet of Unicode alone."""
    starts = dfa.alphabet.starts
    within = sum(start <= MAX_CODE_POINT for start in starts)
    if within == len(starts):
        return dfa
    class_of = dfa.alphabet.class_of[:within]
    used = max(class_of) + 1  # classes are numbered by first appearance: classes of marks alone come last
    alphabet = Alphabet(starts[:within], class_of)
    return Dfa(alphabet, np.ascontiguousarray(dfa.table[:, :used]), dfa.accepting, dfa.start)
