"""Character sets that most grammars use; their tables are kept on disk with the vocabulary.

Those of a few ranges cost little more to build than to read; this is mostly for \\w, whose UTF-8 automaton alone takes
milliseconds, and for processes that share the pages of the file.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet

JSON_STRING_CHARS = ~CharSet.of((0x00, 0x1F), '"\\')
"""What stands unescaped in a JSON string (RFC 8259 §7)."""

_FEW_RANGES = frozenset(
    {
        JSON_STRING_CHARS,
        ANY_CHAR,
        ~CharSet.of("\n"),
        CharSet.of((0x61, 0x7A)),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), "_"),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), "_-"),
    }
)


@lru_cache(maxsize=1)
def word_characters() -> CharSet:
    r"""The set of \w as Python's ``re`` understands it for str patterns. Some 30 ms, once."""
    every = np.arange(MAX_CODE_POINT + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    return CharSet.of(*((found.start(), found.end() - 1) for found in re.finditer(r"\w+", every)))


def is_popular(charset: CharSet) -> bool:
    """Is a table of this set worth a file?"""
    if len(charset.ranges) < 100:
        return charset in _FEW_RANGES
    return charset == word_characters()


def popular_charsets() -> list[CharSet]:
    """All of them."""
    return [*_FEW_RANGES, word_characters()]
