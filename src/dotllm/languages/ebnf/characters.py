"""String literals and character classes of GBNF and xgrammar EBNF."""

from __future__ import annotations

import re

from dotllm.charset import CharSet, Range
from dotllm.languages.source import Source

_SIMPLE = {c: c for c in "\"\\/'?[]-"} | dict(zip("nrtbfav0e", "\n\r\t\b\f\a\v\0\x1b", strict=True))
_IN_CLASS = _SIMPLE | {c: c for c in "^$.*+(){}|"}
_HEX = re.compile(r"[0-9a-fA-F]*")
_DIGITS = {"x": 2, "u": 4, "U": 8}


def string(source: Source, begin: int, end: int) -> str:
    """What the literal at ``begin:end``, quotes included, stands for."""
    text = source.text[begin + 1 : end - 1]
    if "\\" not in text:
        return text
    parts, at, stop = [], begin + 1, end - 1
    while at < stop:
        character, at = _character(source, at, _SIMPLE)
        parts.append(character)
    return "".join(parts)


def character_class(source: Source, begin: int, end: int) -> CharSet:
    """The set that the class at ``begin:end``, brackets included, stands for; ``[^]`` is any character."""
    at, stop = begin + 1, end - 1
    if at == stop:
        raise source.invalid(
            '[] is read differently by llama.cpp (no character) and others (never): write ""', begin, "[]"
        )
    negated = source.text.startswith("^", at)
    at += negated
    ranges: list[Range | str | int] = []
    while at < stop:
        first_at = at
        first, at = _character(source, at, _IN_CLASS)
        last = first
        if source.text.startswith("-", at) and at + 1 < stop:
            last, at = _character(source, at + 1, _IN_CLASS)
            if last < first:
                raise source.invalid(f"the range {first}-{last} ends before it begins", first_at)
        ranges.append((ord(first), ord(last)))
    found = CharSet.of(*ranges)
    return ~found if negated else found


def _character(source: Source, at: int, simple: dict[str, str]) -> tuple[str, int]:
    """The character at ``at`` and the offset behind it."""
    text = source.text
    if text[at] != "\\":
        return text[at], at + 1
    letter = text[at + 1]
    count = _DIGITS.get(letter)
    if count is None:
        found = simple.get(letter)
        if found is None:
            raise source.invalid(f"unknown escape \\{letter}", at)
        return found, at + 2
    match = _HEX.match(text, at + 2)
    digits = match.group() if match else ""
    if letter == "x" and len(digits) > 2:
        raise source.invalid(
            f"\\x{digits} is read differently by llama.cpp (two digits) and xgrammar (all of them): write \\u or \\U",
            at,
            "\\x",
        )
    code = int(digits[:count], 16) if len(digits) >= (1 if letter == "x" else count) else 0x110000
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise source.invalid(f"{text[at : at + 2 + count]} is no character", at)
    return chr(code), at + 2 + min(count, len(digits))
