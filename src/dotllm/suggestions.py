"""Finds the known name that an unknown one probably misspells."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NEAR = 0.65
"""The least ratio of `difflib` at which a name is a misspelling of another."""

_NEARLY_THE_SAME = 0.9


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs from ``name`` only in case, underscores or a few letters; None if there is none."""
    import difflib

    words, bare = sorted(known), _bare(name)
    same = [word for word in words if _bare(word) == bare]
    if same:
        return same[0]
    near = difflib.get_close_matches(name, _perhaps_near(name, words), n=3, cutoff=_NEAR)
    return next((word for word in near if _is_near(*_apart(name, word))), None)


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _perhaps_near(name: str, words: Iterable[str]) -> list[str]:
    """Those of ``words`` that share enough letters with ``name`` for a ratio of `_NEAR`. `difflib` would take ten times
    as long to rule out the others."""
    written, result = name.encode(errors="surrogatepass"), []
    for word in words:
        other = word.encode(errors="surrogatepass")
        shared = min(
            len(written) - len(written.translate(None, other)), len(other) - len(other.translate(None, written))
        )
        if 2 * shared / (len(name) + len(word)) >= _NEAR:  # as difflib rounds
            result.append(word)
    return result


def _apart(name: str, word: str) -> tuple[str, str]:
    """Both names without the parts with which both begin (``--dotllm-``), which do not tell what was meant."""
    shared = 0
    for part in re.finditer(r"[^-_/.]*[-_/.]+", name):
        if not word.startswith(name[: part.end()]):
            break
        shared = part.end()
    return name[shared:], word[shared:]


def _is_near(name: str, word: str) -> bool:
    """Whether ``name`` misspells ``word``. The first letter is hardly ever wrong (``cuid`` is not ``uuid``), but it may
    be left out, doubled, or swapped with the second. Whole words at the beginning may be left out."""
    import difflib

    if re.search(rf"[-_/.]{re.escape(name)}$", word):
        return True
    begins = (
        name[:1].casefold() == word[:1].casefold() or name[:2] == word[1::-1] or name[1:] == word or name == word[1:]
    )
    ratio = difflib.SequenceMatcher(None, name, word).ratio()
    return ratio >= (_NEAR if begins else _NEARLY_THE_SAME)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean "string"?``, or "" if no known name is near."""
    result = closest(name, known)
    return "" if result is None else f'did you mean "{result}"?'


def is_slip(name: str, word: str) -> bool:
    """Whether ``name`` is ``word`` with one slip, or one for every four letters: a letter left out, added or wrong, or
    two swapped. Case and underscores do not count."""
    return _slips(_bare(name), _bare(word)) <= max(1, len(name) // 4)


def _slips(a: str, b: str) -> int:
    """The distance of two strings by Damerau and Levenshtein, with swaps of adjacent letters."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, letter in enumerate(a):
        row = [i + 1]
        for j, other in enumerate(b):
            row.append(min(last[j] + (letter != other), last[j + 1] + 1, row[j] + 1))
            if i and j and letter == b[j - 1] and a[i - 1] == other:
                row[-1] = min(row[-1], before[j - 1] + 1)
        before, last = last, row
    return last[-1]
