"""Parts of a terminal's regular expression that have an effect only in a lexer.

Lark's lexer matches a terminal somewhere in a text: an assertion at its edge examines the text next to it, and a lazy
quantifier says where the match ends. Here an expression matches the whole text of a terminal. So these parts have no
effect, the grammar allows more than the author expects, and a warning says so (docs/grammars.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from dotllm.automata.dfa import Budget, Dfa
from dotllm.errors import SpecError
from dotllm.languages.regex import regex_to_dfa
from dotllm.languages.regex.parser import parse
from dotllm.languages.regex.syntax import Assertion, AssertionKind, Empty, Look, Node, Seq, children

MAY_HAVE_NO_EFFECT = re.compile(r"\\[bB]|\(\?<?[=!]|[*+?}]\?")
"""Matches in all expressions, and grammars, that have such a part."""
_BOUNDARIES = (AssertionKind.WORD_BOUNDARY, AssertionKind.NOT_WORD_BOUNDARY)


def without_effect(pattern: str, *, lazy: bool = False) -> str:
    """What the regular expression of a terminal has that only a lexer heeds, as a text for people; "" if nothing, or if
    the expression is refused. ``lazy``: the grammar has lazy rules or terminals, so its author knows where a match
    ends."""
    try:
        parsed = parse(pattern)
    except SpecError:
        return ""
    for name in chain(_outward(parsed.node, ahead=False), _outward(parsed.node, ahead=True)):
        return (
            f"{name} at the edge of a regular expression does not examine the text next to it: write what must come "
            "there into the rule, or exclude texts from the terminal"
        )
    if parsed.lazy and not lazy and _goes_on(pattern):
        return "a lazy quantifier is the same as a greedy one: write which characters may occur, or make the rule lazy"
    return ""


def _outward(node: Node, *, ahead: bool) -> Iterator[str]:
    """The assertions at the end (``ahead``) or the beginning of an expression that look beyond it."""
    if isinstance(node, Assertion):
        if node.kind in _BOUNDARIES:
            yield node.kind.value
    elif isinstance(node, Look):
        if node.ahead == ahead:
            yield f"(?{'' if ahead else '<'}{'!' if node.negated else '='}…)"
    elif isinstance(node, Seq):
        for part in node.parts[:: -1 if ahead else 1]:
            yield from _outward(part, ahead=ahead)
            if not isinstance(part, (Assertion, Look, Empty)):
                break
    else:
        for child in children(node):
            yield from _outward(child, ahead=ahead)


def _goes_on(pattern: str) -> bool:
    """Whether a match may begin a longer match; True if this takes too much work."""
    try:
        budget = Budget()
        matches = regex_to_dfa(pattern, search=False, budget=budget)
        return not matches.intersection(matches.concat(Dfa.length(1), budget), budget).is_empty()
    except SpecError:
        return True
