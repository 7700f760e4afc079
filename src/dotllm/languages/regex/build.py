"""The ways from the text of a regular expression to a Grammar, to an expression of one, or to a Dfa."""

from __future__ import annotations

from functools import lru_cache

from dotllm.automata.dfa import Budget, Dfa
from dotllm.charset import ANY_CHAR
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.analysis import analyse
from dotllm.languages.regex.lengths import has_looks, split_by_length, with_length, without_implied_limits
from dotllm.languages.regex.lookaround import automaton
from dotllm.languages.regex.lowering import LowerChars, LowerDfa, Lowering, LowerText
from dotllm.languages.regex.parser import Dialect, Flags, parse
from dotllm.languages.regex.rewriting import impossible, resolve_anchors, simplify_search, without_atomic
from dotllm.languages.regex.syntax import ANY_TEXT, NO_CHARS, Node, seq

_SHORT = 1000  # most characters of a pattern whose syntax tree is remembered


def regex_to_grammar(
    pattern: str,
    *,
    search: bool = False,
    dialect: Dialect = "python",
    flags: Flags | None = None,
    budget: Budget | None = None,
) -> Grammar:
    """The Grammar of the texts that ``pattern`` matches as a whole, or, with ``search``, somewhere.

    Raises:
        InvalidSpecError: ``pattern`` is not a regular expression, or no text matches it.
        UnsupportedError: ``pattern`` has a construct that is not regular; ``keyword`` names it.
        BudgetExceededError: the expression takes too much work.
    """
    grammar = Grammar()
    grammar.start = regex_to_expression(pattern, grammar, search=search, dialect=dialect, flags=flags, budget=budget)
    if not analyse(grammar).derives[grammar.start]:
        shared = Budget()  # all attempts together take no more work than one expression may

        def matches(other: str) -> bool:
            dfa = regex_to_dfa(other, search=search, dialect=dialect, flags=flags, budget=shared)
            return not dfa.is_empty()

        refusal = impossible(pattern, matches, "regex")
        raise refusal
    return grammar


def regex_to_expression(
    pattern: str,
    grammar: Grammar,
    *,
    search: bool,
    dialect: Dialect = "python",
    lower_chars: LowerChars | None = None,
    lower_text: LowerText | None = None,
    lower_dfa: LowerDfa | None = None,
    minimum: int = 0,
    maximum: int | None = None,
    flags: Flags | None = None,
    budget: Budget | None = None,
) -> Expression:
    """``pattern`` as an expression of ``grammar``; `never` where no text matches.

    ``lower_chars``, ``lower_text`` and ``lower_dfa`` spell one character out of a set, a literal text and an automaton;
    without them characters are written as UTF-8. ``minimum`` and ``maximum`` bound the length of the text in code
    points. Raises as `regex_to_grammar` does.
    """
    budget = budget or Budget()
    node = _syntax(pattern, search, dialect, flags, budget)
    lowering = Lowering(grammar, lower_chars, lower_text, lower_dfa, budget)
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
    """The language of ``pattern`` as automata with bounds on the length of their texts, if it has look-aheads on the
    length, which would multiply the states (`length_looks`); else None. Raises as `regex_to_grammar` does."""
    budget = Budget()
    node = _syntax(pattern, search, dialect, None, budget)
    parts = split_by_length(node) if has_looks(node) else None
    return None if parts is None else [(automaton(part, budget), low, high) for part, low, high in parts]


def regex_to_dfa(
    pattern: str,
    *,
    search: bool,
    dialect: Dialect = "python",
    flags: Flags | None = None,
    budget: Budget | None = None,
) -> Dfa:
    """The language of ``pattern``; empty where no text matches. Raises as `regex_to_grammar` does."""
    budget = budget or Budget()
    return automaton(_syntax(pattern, search, dialect, flags, budget), budget)


def _syntax(pattern: str, search: bool, dialect: Dialect, flags: Flags | None, budget: Budget) -> Node:
    """The syntax tree of the texts to match, without atomic groups and anchors."""
    found = None
    if flags is None and isinstance(pattern, str) and len(pattern) <= _SHORT:
        found = _plain_syntax(pattern, search, dialect)
    return _read(pattern, search, dialect, flags, budget) if found is None else found


@lru_cache(maxsize=256)
def _plain_syntax(pattern: str, search: bool, dialect: Dialect) -> Node | None:
    """`_syntax` without flags; None if it needs a budget. Remembered, because many patterns are read twice, as an
    automaton and as an expression."""
    parsed = parse(pattern, dialect, None)
    return None if parsed.atomic else _whole(parsed.node, search, parsed.anchors)


def _read(pattern: str, search: bool, dialect: Dialect, flags: Flags | None, budget: Budget) -> Node:
    parsed = parse(pattern, dialect, flags)
    node = without_atomic(parsed.node, ANY_CHAR if search else NO_CHARS, budget) if parsed.atomic else parsed.node
    return _whole(node, search, parsed.anchors)


def _whole(node: Node, search: bool, anchors: bool) -> Node:
    """``node`` as the expression of whole texts: with ``search``, any text may stand on both sides."""
    if search:
        node = seq([ANY_TEXT, node, ANY_TEXT])
    if anchors:
        node = resolve_anchors(node)
    return simplify_search(node) if search else node


__all__ = ["Dialect", "Flags", "regex_to_bounded_dfas", "regex_to_dfa", "regex_to_expression", "regex_to_grammar"]
