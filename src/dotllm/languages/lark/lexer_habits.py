"""Parts of a terminal's regular expression that have an effect only in a lexer.

Lark's lexer matches a terminal somewhere in a text: an assertion at its edge examines the text next to it, and a lazy
quantifier says where the match ends. Here an expression matches the whole text of a terminal. So these parts have no
effect, the grammar allows more than the author expects, and a warning says so (docs/grammars.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dotllm.automata.dfa import Budget, Dfa
from dotllm.errors import SpecError
from dotllm.languages.regex import regex_to_dfa

MAY_HAVE_NO_EFFECT = re.compile(r"\\[bB]|\(\?<?[=!]|[*+?}]\?")
"""Matches in all expressions, and grammars, that have such a part."""
_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?"
    r"|\(\?[a-zA-Z]+\)|\((?:\?(?:<?[=!]|P?<\w+>|[a-zA-Z-]*:|>))?|(?:[*+?]|\{\d*(?:,\d*)?\})[?+]?|.",
    re.DOTALL,
)
_BEFORE, _AFTER = ("(?<=", "(?<!"), ("(?=", "(?!")  # assertions about what comes before, and after
_LAZY = ("*?", "+?", "??", "}?")  # ends of parts


def without_effect(pattern: str, flags: str, *, lazy: bool = False) -> str:
    """What the regular expression of a terminal has that only a lexer heeds, as a text for people; "" if nothing.
    ``lazy``: the grammar has lazy rules or terminals, so its author knows where a match ends."""
    parts = [part for part in _PARTS.findall(pattern) if part.strip() or "x" not in flags]
    for part in _edges(parts):
        return (
            f"{part} at the edge of a regular expression does not examine the text next to it: write what must come "
            "there into the rule, or exclude texts from the terminal"
        )
    is_lazy = any(part.endswith(_LAZY) and part[0] in "*+?{" for part in parts)
    if is_lazy and not lazy and _goes_on(f"(?u{flags.replace('u', '')}){pattern}"):
        return "a lazy quantifier is the same as a greedy one: write which characters may occur, or make the rule lazy"
    return ""


def _edges(parts: list[str]) -> Iterator[str]:
    """The assertions at the edges that look outwards."""
    at_left = _at_edge(parts, "(", ")")
    at_right = _at_edge(parts[::-1], ")", "(")[::-1]
    opened: list[str] = []
    looks = 0  # how many of them are assertions
    for part, left, right in zip(parts, at_left, at_right, strict=True):
        if part == ")" and opened:
            group = opened.pop()
            looks -= group in (*_BEFORE, *_AFTER)
            if group in _AFTER and not looks and right:
                yield f"{group}…)"
        elif part[0] == "(" and part[-1] != ")":
            if part in _BEFORE and not looks and left:
                yield f"{part}…)"
            opened.append(part)
            looks += part in (*_BEFORE, *_AFTER)
        elif part in (r"\b", r"\B") and not looks and (left or right):
            yield part


def _at_edge(parts: list[str], enters: str, leaves: str) -> list[bool]:
    """Whether nothing that matches comes before each part in its own alternatives. The parts stand in the order of
    the text, or in reverse; ``enters`` and ``leaves`` are the parentheses in this order."""
    out: list[bool] = []
    is_edge = True
    outside: list[bool] = []  # the same for the beginnings of the groups around a part
    for part in parts:
        out.append(is_edge)
        is_flags = part[0] == "(" and part[-1] == ")"
        if is_flags or (enters == ")" and part[0] in "*+?{"):
            continue
        if part[0] == enters:
            outside.append(is_edge)
        elif part == "|":
            is_edge = outside[-1] if outside else True
        else:
            if part[0] == leaves and outside:
                outside.pop()
            is_edge = False
    return out


def _goes_on(pattern: str) -> bool:
    """Whether a match may begin a longer match; True if this takes too much work."""
    try:
        budget = Budget()
        matches = regex_to_dfa(pattern, search=False, budget=budget)
        return not matches.intersection(matches.concat(Dfa.length(1), budget), budget).is_empty()
    except SpecError:
        return True
