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
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?[a-zA-Z]+\)|\((?:\?(?:<?[=!]|P?<\w+>|[a-zA-Z-]*:|>))?|(?:[*+?]|\{\d*,?\d*\})[?+]?|.",
    re.DOTALL,
)
_BEFORE, _AFTER = ("(?<=", "(?<!"), ("(?=", "(?!")  # assertions about what comes before, and after
_LAZY = ("*?", "+?", "??", "}?")  # ends of parts


def without_effect(pattern: str, flags: str) -> str:
    """What the regular expression of a terminal has that only a lexer heeds, as a text for people; "" if nothing."""
    parts = [part for part in _PARTS.findall(pattern) if part.strip() or "x" not in flags]
    for part in _edges(parts):
        return (
            f"{part} at the edge of a terminal does not examine the text next to it: write what must come there "
            "into the rule, or exclude texts from the terminal"
        )
    is_lazy = any(part.endswith(_LAZY) and part[0] in "*+?{" for part in parts)
    if is_lazy and _goes_on(f"(?u{flags.replace('u', '')}){pattern}"):
        return "a lazy quantifier is the same as a greedy one: write which characters may occur, or make the rule lazy"
    return ""


def _edges(parts: list[str]) -> Iterator[str]:
    """The assertions at the edges that look outwards."""
    opened: list[str] = []
    for i, part in enumerate(parts):
        inside = any(group in (*_BEFORE, *_AFTER) for group in opened)
        if part == ")" and opened:
            group = opened.pop()
            inside = any(outer in (*_BEFORE, *_AFTER) for outer in opened)
            if group in _AFTER and not inside and _is_at_edge(parts, i, 1):
                yield f"{group}…)"
        elif part[0] == "(" and part[-1] != ")":
            opened.append(part)
            if part in _BEFORE and not inside and _is_at_edge(parts, i, -1):
                yield f"{part}…)"
        elif part in (r"\b", r"\B") and not inside and (_is_at_edge(parts, i, -1) or _is_at_edge(parts, i, 1)):
            yield part


def _is_at_edge(parts: list[str], i: int, step: int) -> bool:
    """Whether nothing that matches comes after part i (``step`` 1), or before it (-1), in its own alternatives."""
    leaves, enters = (")", "(") if step > 0 else ("(", ")")
    depth, is_other = 0, False  # within another alternative
    for part in parts[i + step :: step] if i + step >= 0 else ():
        if part[0] == "(" and part[-1] == ")":  # flags
            continue
        if is_other:
            is_other = part[0] != leaves or depth > 0
            depth += (part[0] == enters) - (part[0] == leaves)
        elif part == "|":
            depth, is_other = 0, True
        elif part[0] != leaves and not (step > 0 and part[0] in "*+?{"):
            return False
    return True


def _goes_on(pattern: str) -> bool:
    """Whether a match may begin a longer match; True if this takes too much work."""
    try:
        budget = Budget()
        matches = regex_to_dfa(pattern, search=False, budget=budget)
        return not matches.intersection(matches.concat(Dfa.length(1), budget), budget).is_empty()
    except SpecError:
        return True
