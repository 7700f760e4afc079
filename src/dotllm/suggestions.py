"""The known name that an unknown one is probably a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name that differs from ``name`` in its case, its underscores or a few letters only; None if none is near."""
    import difflib

    words = sorted(known)
    same = [word for word in words if _bare(word) == _bare(name)]
    return next(iter(same or difflib.get_close_matches(name, words, n=1, cutoff=0.65)), None)


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean "string"?``, or nothing if no known name is near."""
    found = closest(name, known)
    return "" if found is None else f'did you mean "{found}"?'
