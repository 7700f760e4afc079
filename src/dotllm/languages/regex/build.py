"""Turns the text of a regular expression into a Grammar, an expression of a Grammar, or a Dfa."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from dotllm.automata.dfa import Budget, Dfa, dfa_to_grammar
from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.analysis import analyse
from dotllm.languages.regex.lengths import (
    context_width,
    has_looks,
    length_bounds,
    split_by_length,
    with_length,
    without_implied_limits,
)
from dotllm.languages.regex.lookaround import automaton
from dotllm.languages.regex.parser import Dialect, parse
from dotllm.languages.regex.rewriting import impossible, resolve_anchors, simplify_search, without_atomic
from dotllm.languages.regex.syntax import ANY_TEXT, NO_CHARS, Alt, Chars, Empty, Node, Repeat, Seq, Text, seq

# Syntax tree → Grammar.
#
# Most of an expression goes straight into `Grammar`: repetitions stay counted, so ``[a-z]{1,200}`` is two nodes. Only
# the parts around assertions go through the DFA algebra, and they are kept as small as possible: a part whose
# assertions examine nothing outside it (`lengths.context_width`) is compiled alone, as in
# ``((?!-)[a-z-]{1,63}\.){1,8}``.


# The most parts that go through the DFA algebra; each takes about half a millisecond.
MAX_AUTOMATA = 200

# The most states of a product with a length; beyond that the machine counts.
MANY_STATES = 2_000


class LowerDfa(Protocol):
    """The strings of an automaton with ``low`` to ``high`` characters, as an expression."""

    def __call__(self, dfa: Dfa, low: int = 0, high: int | None = None, /) -> Expression:
        """The expression; ``high`` None: no limit."""


class Writing(NamedTuple):
    """How texts are written: one character of a set, a literal text, and the strings of an automaton."""

    chars: Callable[[CharSet], Expression]
    text: Callable[[str], Expression]
    dfa: LowerDfa


class Lowering:
    """Adds expressions to ``grammar``; the caller says how texts are written: as they are, or as in a JSON string."""

    def __init__(self, grammar: Grammar, writing: Writing | None, budget: Budget) -> None:
        self.grammar = grammar
        self.budget = budget
        self._automata = 0
        self.chars, self.text, self.dfa = writing or Writing(grammar.chars, grammar.literal, self._with_length)

    def _with_length(self, dfa: Dfa, low: int = 0, high: int | None = None, /) -> Expression:
        counted = high if high is not None and high * len(dfa) > MANY_STATES else None
        if low or (high is not None and counted is None):
            try:
                limit = Dfa.length(low, None if counted is not None else high, self.budget)
                dfa = dfa.intersection(limit, self.budget)
            except BudgetExceededError:
                raise self.budget.exceeded(f"a pattern with assertions and at least {low:,} characters") from None
        bounds = dfa.length_bounds()
        if counted is not None and (bounds is None or bounds[0] > counted):
            return self.grammar.never()
        return dfa_to_grammar(dfa, self.grammar, self.chars, counted or 0)

    def plain(self, node: Node) -> Expression:
        """An expression without assertions."""
        if isinstance(node, Text):
            return self.text(node.text)
        if isinstance(node, Chars):
            return self.chars(node.charset)
        grammar = self.grammar
        if isinstance(node, Seq):
            return grammar.seq(list(map(self.plain, node.parts)))
        if isinstance(node, Alt):
            return grammar.alt(list(map(self.plain, node.choices)))
        if isinstance(node, Repeat):
            return grammar.repeat(self.plain(node.body), node.minimum, node.maximum)
        return grammar.empty() if isinstance(node, Empty) else grammar.never()

    def lower(self, node: Node) -> Expression:
        """An expression without anchors whose assertions see nothing beyond it, because nothing is there or it is out
        of reach.

        Raises:
            BudgetExceededError: too many separate parts have assertions.
        """
        if not has_looks(node):
            return self.plain(node)
        if isinstance(node, Alt):
            return self.grammar.alt([self.lower(choice) for choice in node.choices])
        if isinstance(node, Seq) and len(segments := _segments(node)) > 1:
            return self.grammar.seq(list(map(self.lower, segments)))
        if isinstance(node, Repeat) and context_width(node.body) == (0, 0):
            return self.grammar.repeat(self.lower(node.body), node.minimum, node.maximum)
        self._automata += 1
        if self._automata > MAX_AUTOMATA:
            wrong = f"a regular expression may not have assertions in more than {MAX_AUTOMATA} separate places"
            raise BudgetExceededError(wrong, keyword="look-around")
        return self.dfa(automaton(node, self.budget))


def _segments(node: Seq) -> list[Node]:
    """``node`` cut into the shortest sequences whose assertions do not look beyond them.

    An assertion at the edge of the text may look beyond ``node``. It sees nothing there, which is what an automaton
    of the segment alone assumes.
    """
    parts = node.parts
    least = [length_bounds(part)[0] for part in parts]
    widths = [context_width(part) for part in parts]
    glued = [False] * len(parts)  # glued[i]: part i belongs to the segment of part i - 1
    seen = 0  # how far any part looks beyond the border on its left (then: right)
    for i in range(len(parts) - 1, 0, -1):
        seen = max(widths[i][0], seen - least[i])
        glued[i] = seen > 0
    seen = 0
    for i in range(len(parts) - 1):
        seen = max(widths[i][1], seen - least[i])
        glued[i + 1] = glued[i + 1] or seen > 0
    segments: list[list[Node]] = []
    for part, joined in zip(parts, glued, strict=True):
        if joined and segments:
            segments[-1].append(part)
        else:
            segments.append([part])
    return [seq(segment) for segment in segments]


_SHORT = 1000  # the most characters of a pattern whose syntax tree is cached


def regex_to_grammar(
    pattern: str,
    *,
    search: bool = False,
    dialect: Dialect = "python",
    budget: Budget | None = None,
) -> Grammar:
    """The Grammar of the texts that ``pattern`` matches as a whole, or, with ``search``, somewhere.

    Raises:
        InvalidSpecError: ``pattern`` is not a regular expression, or no text matches it.
        UnsupportedError: ``pattern`` has a construct that is not regular; ``keyword`` names it.
        BudgetExceededError: the expression takes too much work.
    """
    grammar = Grammar()
    grammar.start = regex_to_expression(pattern, grammar, search=search, dialect=dialect, budget=budget)
    if not analyse(grammar).derives[grammar.start]:
        shared = Budget()  # all attempts together take no more work than one expression may

        def matches(other: str) -> bool:
            dfa = regex_to_dfa(other, search=search, dialect=dialect, budget=shared)
            return not dfa.is_empty()

        refusal = impossible(pattern, matches)
        raise refusal
    return grammar


def regex_to_expression(
    pattern: str,
    grammar: Grammar,
    *,
    search: bool,
    dialect: Dialect = "python",
    writing: Writing | None = None,
    minimum: int = 0,
    maximum: int | None = None,
    budget: Budget | None = None,
) -> Expression:
    """``pattern`` as an expression of ``grammar``; `never` if no text matches.

    ``writing``: how texts are written; without it, characters are written as UTF-8. ``minimum`` and ``maximum`` bound
    the length of the text in code points. Raises as `regex_to_grammar` does.
    """
    budget = budget or Budget()
    node = _syntax(pattern, search, dialect, budget)
    lowering = Lowering(grammar, writing, budget)
    if minimum == 0 and maximum is None:
        if not has_looks(node):
            return lowering.plain(node)
        parts = split_by_length(node)
        if parts is not None:
            return grammar.alt([_bounded_expression(part, lowering, low, high) for part, low, high in parts])
    return _bounded_expression(node, lowering, minimum, maximum)


def _bounded_expression(node: Node, lowering: Lowering, minimum: int, maximum: int | None) -> Expression:
    """``node`` with bounds on the length of the text."""
    budget = lowering.budget
    if minimum > 0 or maximum is not None:
        bounded = None if has_looks(node) else with_length(node, minimum, maximum)
        if bounded is None:
            if maximum is not None:
                node = without_implied_limits(node, maximum)
            return lowering.dfa(automaton(node, budget), minimum, maximum)
        node = bounded
    return lowering.lower(node)


def regex_to_bounded_dfas(
    pattern: str, *, search: bool, dialect: Dialect = "python"
) -> list[tuple[Dfa, int, int | None]] | None:
    """The language of ``pattern`` as automata with bounds on the length of their texts, if it has look-aheads that
    bound the length and would multiply the states (`split_by_length`); else None. Raises as `regex_to_grammar`
    does."""
    budget = Budget()
    node = _syntax(pattern, search, dialect, budget)
    parts = split_by_length(node) if has_looks(node) else None
    if parts is None:
        return None
    short = [(part if high is None else without_implied_limits(part, high), low, high) for part, low, high in parts]
    return [(automaton(part, budget), low, high) for part, low, high in short]


def regex_to_dfa(
    pattern: str,
    *,
    search: bool,
    dialect: Dialect = "python",
    budget: Budget | None = None,
) -> Dfa:
    """The language of ``pattern``; empty if no text matches. Raises as `regex_to_grammar` does."""
    budget = budget or Budget()
    return automaton(_syntax(pattern, search, dialect, budget), budget)


def _syntax(pattern: str, search: bool, dialect: Dialect, budget: Budget) -> Node:
    """The syntax tree of whole texts, without atomic groups and anchors; with ``search``, any text may stand on both
    sides of the match."""
    is_short = isinstance(pattern, str) and len(pattern) <= _SHORT
    known = _short_syntax(pattern, search, dialect) if is_short else None
    if known is not None:
        return known
    node, anchors, atomic = parse(pattern, dialect)
    if atomic:
        node = without_atomic(node, ANY_CHAR if search else NO_CHARS, budget)
    return _whole(node, search, anchors)


@lru_cache(maxsize=256)
def _short_syntax(pattern: str, search: bool, dialect: Dialect) -> Node | None:
    """`_syntax` of a pattern without atomic groups; None with them, because they need a budget. Remembered, because
    many patterns are read twice, as an automaton and as an expression."""
    node, anchors, atomic = parse(pattern, dialect)
    return None if atomic else _whole(node, search, anchors)


def _whole(node: Node, search: bool, anchors: bool) -> Node:
    if search:
        node = seq([ANY_TEXT, node, ANY_TEXT])
    if anchors:
        node = resolve_anchors(node)
    return simplify_search(node) if search else node


__all__ = ["Dialect", "regex_to_bounded_dfas", "regex_to_dfa", "regex_to_expression", "regex_to_grammar"]
