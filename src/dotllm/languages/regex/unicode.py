"""Character classes that need the Unicode Character Database: ``\\p{…}``, Unicode ``\\d \\w \\s``, case folding.

The tables come from a file of dotllm (made by ``tools/make_unicode_tables.py``), not from the standard library, so a
pattern means the same under every version of Python. Each property is decoded on first use.

Case-insensitive matching uses *simple case folding* (CaseFolding.txt, status C and S), as in ECMA-262: characters
match if their foldings are equal. So K matches the Kelvin sign, s matches ſ, ß matches ẞ; ß never matches ss, and the
Turkic İ and ı match only themselves (Python's `re` lets them match i).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from dotllm.charset import ANY_CHAR, CharSet

_KINDS = {"GC": "gc", "GENERALCATEGORY": "gc", "SC": "sc", "SCRIPT": "sc", "SCX": "scx", "SCRIPTEXTENSIONS": "scx"}


@cache
def _tables() -> tuple[dict[tuple[str, str], str], str]:
    """The undecoded ranges by (kind, name), and the undecoded folding."""
    tables: dict[tuple[str, str], str] = {}
    folding = ""
    for line in Path(__file__).with_name("unicode.txt").read_text("ascii").splitlines()[1:]:
        kind, names, *ranges = line.split(" ", 2)
        if kind == "fold":
            folding = ranges[0]
        for name in names.split(","):
            tables[kind, name] = ranges[0] if ranges else ""
    return tables, folding


@lru_cache(maxsize=2048)
def _table(kind: str, name: str) -> CharSet | None:
    if kind == "binary" and name == "ANY":
        return ANY_CHAR
    if kind == "binary" and name == "ASCII":
        return CharSet(((0, 0x7F),))
    text = _tables()[0].get((kind, name))
    return None if text is None else CharSet(tuple(_decode(text)))


def _decode(text: str) -> Iterator[tuple[int, int]]:
    after = 0
    for word in text.split():
        gap, _, more = word.partition("+")
        low = after + int(gap, 36)
        after = low + (int(more, 36) if more else 0) + 1
        yield low, after - 1


def unicode_property(text: str) -> CharSet | None:
    """The set of ``\\p{text}``: a general category, a script, ``Script=…``, or a binary property. None: unknown.

    Names match loosely (case, spaces, ``_`` and ``-`` do not count), long or short, with or without the prefix
    ``Is``.
    """
    name = text.upper().translate(_LOOSE)
    if "=" in text:
        left, _, value = name.partition("=")
        kind = _KINDS.get(left)
        return _table(kind, value) if kind else None
    for candidate in (name, name[2:]) if name.startswith("IS") else (name,):
        for kind in ("gc", "sc", "binary"):
            table = _table(kind, candidate)
            if table is not None:
                return table
    return None


_LOOSE = str.maketrans("", "", " _-")


@cache
def digits() -> CharSet:
    """Unicode ``\\d``: general category Nd, as in `re`."""
    return unicode_property("Nd") or CharSet(())


@cache
def word() -> CharSet:
    """Unicode ``\\w``: letters, numbers and ``_``, as in `re` (not the combining marks of UTS 18)."""
    return (unicode_property("L") or CharSet(())) | (unicode_property("N") or CharSet(())) | CharSet.of("_")


@cache
def spaces() -> CharSet:
    """Unicode ``\\s``: the property White_Space and U+001C..1F, as in `str.isspace`."""
    return (unicode_property("White_Space") or CharSet(())) | CharSet.of((0x1C, 0x1F))


@cache
def _folding() -> dict[int, tuple[int, ...]]:
    """For each code point that has a case, all code points that fold like it, itself included."""
    same: dict[int, tuple[int, ...]] = {}
    for group in _tables()[1].split():
        members = tuple(int(point, 16) for point in group.split("="))
        for point in members:
            same[point] = members
    return same


@cache
def _cased() -> CharSet:
    return CharSet.of(*_folding())


@lru_cache(maxsize=4096)
def folded(charset: CharSet, ascii_only: bool = False) -> CharSet:
    """``charset`` and all characters that differ from one of its members only in case."""
    if ascii_only:
        lower = charset & CharSet(((0x61, 0x7A),))
        upper = charset & CharSet(((0x41, 0x5A),))
        down = [(low + 0x20, high + 0x20) for low, high in upper.ranges]
        up = [(low - 0x20, high - 0x20) for low, high in lower.ranges]
        return charset | CharSet.of(*up, *down)
    if charset == ANY_CHAR:
        return charset
    same = _folding()
    points = [point for low, high in (charset & _cased()).ranges for point in range(low, high + 1)]
    return charset | CharSet.of(*{other for point in points for other in same[point]})
