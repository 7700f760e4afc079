"""Why no text matches a regular expression: the assertion that can never hold.

A request's expression matches the whole text, so nothing stands before its beginning or behind its end: ``(?<=a)b`` and
``a^b`` match nowhere. The assertion at fault is the one without which some text matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dotllm.errors import InvalidSpecError, Offset, Related, SpecError

_TRIED = 16
_ASSERTION = re.compile(
    r"(?P<skipped>\\[^bBAZz]|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?#[^)]*\))|(?P<group>\(\?<?[=!])|(?P<anchor>\\[bBAZz]|[$^])",
    re.DOTALL,
)
_NAMES = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind"}
_BEFORE = "the expression matches the whole text, so nothing stands before its beginning"
_BEHIND = "the expression matches the whole text, so nothing stands behind its end"
_HELP = {"^": _BEFORE, "\\A": _BEFORE, "$": _BEHIND, "\\Z": _BEHIND, "\\z": _BEHIND}


def impossible(pattern: str, matches: Callable[[str], bool], keyword: str) -> InvalidSpecError:
    """The refusal of a ``pattern`` that no text matches. ``matches`` says of a pattern whether some text does;
    ``keyword`` is the refusal's. The assertion is a related place: the whole expression is what is refused."""
    message = "no text matches the regular expression"
    for begin, end, name in _assertions(pattern):
        try:
            if not matches(f"{pattern[:begin]}(?:){pattern[end:]}"):
                continue
        except SpecError:  # without it the expression is another one, which may be refused
            continue
        help = _HELP.get(name, "")
        if name == "look-behind" and begin == 0:
            help = _BEFORE
        elif name == "look-ahead" and end == len(pattern):
            help = _BEHIND
        what = f"the {name} {_shortened(pattern[begin:end])!r}" if name not in _HELP else repr(name)
        related = (Related(Offset(begin), "it can never hold here"),)
        message = f"{message}: {what} at offset {begin} can never hold"
        return InvalidSpecError(message, keyword=keyword, code="unsatisfiable", help=help, related=related)
    return InvalidSpecError(message, keyword=keyword, code="unsatisfiable")


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _assertions(pattern: str) -> Iterator[tuple[int, int, str]]:
    """(Begin, end, name) of the first few assertions of ``pattern``."""
    found = 0
    for match in _ASSERTION.finditer(pattern):
        if match.lastgroup == "skipped":
            continue
        found += 1
        if found > _TRIED:
            return
        if match.lastgroup == "anchor":
            word = {"\\b": "word boundary", "\\B": "word boundary"}
            yield match.start(), match.end(), word.get(match[0], match[0])
        else:
            yield match.start(), _end_of_group(pattern, match.end()), _NAMES[match[0]]


def _end_of_group(pattern: str, at: int) -> int:
    """Behind the parenthesis that closes the group whose content begins at ``at``."""
    depth = 1
    for match in re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL).finditer(pattern, at):
        depth += (match[0] == "(") - (match[0] == ")")
        if not depth:
            return match.end()
    return len(pattern)
