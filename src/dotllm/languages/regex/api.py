"""The ways from the text of a regular expression to a Grammar, to an expression of one, or to a Dfa."""

from __future__ import annotations

from functools import lru_cache

from dotllm.automata.dfa import Budget, Dfa
from dotllm.charset import ANY_CHAR
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.analysis import analyse
from dotllm.languages.regex.anchors import resolve_anchors
from dotllm.languages.regex.atomic import without_atomic
from dotllm.languages.regex.impossible import impossible
from dotllm.languages.regex.lengths import with_length, without_implied_limits
from dotllm.languages.regex.lookaround import automaton
from dotllm.languages.regex.lowering import LowerChars, LowerDfa, Lowering, LowerText
from dotllm.languages.regex.measure import has_looks
from dotllm.languages.regex.reading.parser import parse
from dotllm.languages.regex.reading.scanner import Dialect, Flags
from dotllm.languages.regex.simplify_search import simplify_search
from dotllm.languages.regex.syntax import ANY_TEXT, NO_CHARS, Node, seq

_SHORT = 1000  # characters of a pattern whose syntax tree is kept for a while


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
        InvalidSpecError: ``pattern`` is no regular expression, or no text matches it.
        UnsupportedError: ``pattern`` has a construct that is none in the sense of automata; ``keyword`` names it.
        BudgetExceededError: the expression takes too much work.
    """
    grammar = Grammar()
    grammar.start = regex_to_expression(pattern, grammar, search=search, dialect=dialect, flags=flags, budget=budget)
    if not analyse(grammar).derives[grammar.start]:
        shared = Budget()  # all that is tried takes no more work than one expression may

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
    if minimum > 0 or maximum is not None:
        bounded = None if has_looks(node) else with_length(node, minimum, maximum)
        if bounded is None:
            if maximum is not None:
                node = without_implied_limits(node, maximum)
            return lowering.dfa(automaton(node, budget), minimum, maximum)
        node = bounded
    return lowering.lower(node)


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
    """`_syntax` without flags; None if it needs a budget. Many patterns are read twice, as an automaton and as an
    expression."""
    parsed = parse(pattern, dialect, None)
    return None if parsed.atomic else _whole(parsed.node, search, parsed.anchors)


def _read(pattern: str, search: bool, dialect: Dialect, flags: Flags | None, budget: Budget) -> Node:
    parsed = parse(pattern, dialect, flags)
    node = without_atomic(parsed.node, ANY_CHAR if search else NO_CHARS, budget) if parsed.atomic else parsed.node
    return _whole(node, search, parsed.anchors)


def _whole(node: Node, search: bool, anchors: bool) -> Node:
    """What a whole text is when ``node`` is to match, or to match somewhere."""
    if search:
        node = seq([ANY_TEXT, node, ANY_TEXT])
    if anchors:
        node = resolve_anchors(node)
    return simplify_search(node) if search else node
