"""Which requests of a step vLLM constrains, where a reasoning parser decides.

A model that reasons is free until its reasoning ends, and how that is found out differs with every release of vLLM
(``should_fill_bitmask``, ``_get_constraint_start``, ``_get_constraint_bounds``). It comes down to one thing in all of
them: ``grammar_bitmask`` goes through the requests and hands ``_fill_bitmasks`` what to fill. So it is let run with a
note-taker in place of that, which fills nothing.

Without speculation: with drafts a bitmask is filled between moves of the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

FILLS = "_fill_bitmasks"


def constrained(
    manager: Any, grammar_bitmask: Callable[..., Any], requests: Any, ids: list[str]
) -> list[Any | None] | None:
    """By request the grammar whose mask holds, or None where everything is allowed. None where vLLM does more than
    that (since 0.33 it may forbid single tokens while a model reasons), or is not understood.

    grammar_bitmask: vLLM's own, unbound.
    """
    noted: dict[int, Any] = {}

    def note(batch: Iterable[Any]) -> None:
        for grammar, place, holds, *forbidden in batch:
            noted[place] = ... if any(forbidden) else grammar if holds else None

    if not hasattr(type(manager), FILLS):
        return None
    setattr(manager, FILLS, note)
    try:
        grammar_bitmask(manager, requests, ids, {})
    finally:
        delattr(manager, FILLS)
    found = [noted.get(place, ...) for place in range(len(ids))]
    return None if ... in found else found
