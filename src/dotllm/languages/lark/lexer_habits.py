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
from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import SpecError
from dotllm.languages.regex import regex_to_dfa
from dotllm.languages.regex.lengths import first_chars
from dotllm.languages.regex.parser import parse
from dotllm.languages.regex.rewriting import STEPS_OF_A_RANGE
from dotllm.languages.regex.syntax import (
    Assertion,
    AssertionKind,
    Empty,
    Lazy,
    Look,
    Node,
    Repeat,
    Seq,
    children,
)

MAY_HAVE_NO_EFFECT = re.compile(r"\\[bB]|\(\?<?[=!]|[*+?}]\?")
"""Matches in all expressions, and grammars, that have such a part."""
_BOUNDARIES = (AssertionKind.WORD_BOUNDARY, AssertionKind.NOT_WORD_BOUNDARY)


def without_effect(pattern: str, *, lazy: bool = False) -> str:
    """What the regular expression of a terminal has that only a lexer heeds, as a text for people; "" if nothing, or if
    the expression is refused. ``lazy``: the grammar has lazy rules or terminals, so its author knows where a match
    ends."""
    try:
        node = parse(pattern, keep_lazy=True).node
    except SpecError:
        return ""
    for look in _edges(node):
        return (
            f"{_name(look)} at the edge of a regular expression does not examine the text next to it: write what must "
            "come there into the rule, or exclude texts from the terminal"
        )
    if not lazy and _may_matter(node) and _goes_on(pattern):
        return "a lazy quantifier is the same as a greedy one: write which characters may occur, or make the rule lazy"
    return ""


def impossible(pattern: str) -> str:
    """The assertion at the edge of a terminal that looks for text beyond it, if therefore no text matches the
    terminal; else ""."""
    try:
        looks = [look for look in _edges(parse(pattern).node) if isinstance(look, Look) and not look.negated]
        return _name(looks[0]) if looks and regex_to_dfa(pattern, search=False).is_empty() else ""
    except SpecError:
        return ""


def _edges(node: Node) -> Iterator[Assertion | Look]:
    return chain(_outward(node, ahead=False), _outward(node, ahead=True))


def _name(assertion: Assertion | Look) -> str:
    if isinstance(assertion, Assertion):
        return assertion.kind.value
    return f"(?{'' if assertion.ahead else '<'}{'!' if assertion.negated else '='}…)"


def _outward(node: Node, *, ahead: bool) -> Iterator[Assertion | Look]:
    """The assertions at the end (``ahead``) or the beginning of an expression that look beyond it."""
    if isinstance(node, Assertion):
        if node.kind in _BOUNDARIES:
            yield node
    elif isinstance(node, Look):
        if node.ahead == ahead:
            yield node
    elif isinstance(node, Seq):
        for part in node.parts[:: -1 if ahead else 1]:
            yield from _outward(part, ahead=ahead)
            if not isinstance(part, (Assertion, Look, Empty)):
                break
    else:
        for child in children(node):
            yield from _outward(child, ahead=ahead)


def _may_matter(node: Node) -> bool:
    """Whether the choice of a lazy quantifier in ``node``, to go on or to stop, is not decided by the next character;
    True if this takes too much work."""
    try:
        return _has_lazy(node) and _is_open(node, ANY_CHAR, Budget())
    except SpecError:
        return True


def _has_lazy(node: Node) -> bool:
    return isinstance(node, Lazy) or any(map(_has_lazy, children(node)))


def _is_open(node: Node, follow: CharSet, budget: Budget) -> bool:
    """`_may_matter`; ``follow``: the characters that can come after ``node``."""
    if isinstance(node, Seq):
        for part in reversed(node.parts):
            budget.spend(STEPS_OF_A_RANGE * (1 + len(follow.ranges)), "lazy quantifiers")
            if _is_open(part, follow, budget):
                return True
            first, empty = first_chars(part)
            follow = first | follow if empty else first
        return False
    if isinstance(node, Lazy):
        counts = node.body
        if isinstance(counts, Repeat) and counts.minimum != counts.maximum and first_chars(counts)[0] & follow:
            return True
    if isinstance(node, Repeat):
        follow = first_chars(node.body)[0] | follow
    return any(_is_open(child, follow, budget) for child in children(node))


def _goes_on(pattern: str) -> bool:
    """Whether a match may begin a longer match; True if this takes too much work."""
    try:
        budget = Budget()
        matches = regex_to_dfa(pattern, search=False, budget=budget)
        return not matches.intersection(matches.concat(Dfa.length(1), budget), budget).is_empty()
    except SpecError:
        return True
