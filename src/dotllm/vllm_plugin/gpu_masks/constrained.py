"""Which requests of a step vLLM constrains, where a reasoning parser decides.

A model that reasons is free until its reasoning ends, and how that is found out differs with every release of vLLM
(``should_fill_bitmask``, ``_get_constraint_start``, ``_get_constraint_bounds``). It comes down to one thing in all of
them: ``grammar_bitmask`` goes through the requests and hands ``_fill_bitmasks`` what to fill. So it is let run with a
note-taker in place of that, which fills nothing.

Without speculation: with drafts a bitmask is filled between moves of the grammar.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dotllm.vllm_plugin.workarounds import implicit_ends

FILLS = "_fill_bitmasks"


class Stance(NamedTuple):
    """What vLLM makes of a request's constraint in the step that comes."""

    grammar: Any
    holds: bool
    """whether the grammar's mask does; else the request is free"""
    forbidden: tuple[int, ...]
    """of a free request: tokens that would end its reasoning in a way that the grammar does not allow"""


def stances(manager: Any, grammar_bitmask: Callable[..., Any], requests: Any, ids: list[str]) -> list[Stance] | None:
    """By request; None where vLLM is not understood. grammar_bitmask: vLLM's own, unbound."""
    noted: dict[int, Stance] = {}

    def note(batch: Iterable[Any]) -> None:
        for grammar, place, holds, *further in batch:
            forbidden = tuple(further[0]) if further else ()
            if not further and not holds and implicit_ends.needed():
                forbidden = implicit_ends.masked_ends(manager, requests[ids[place]])
            noted[place] = Stance(grammar, bool(holds), forbidden)

    if not hasattr(type(manager), FILLS):
        return None
    setattr(manager, FILLS, note)
    try:
        grammar_bitmask(manager, requests, ids, {})
    finally:
        delattr(manager, FILLS)
    if any(place not in noted for place in range(len(ids))):
        return None
    return [noted[place] for place in range(len(ids))]


def stance_of(manager: Any, request: Any) -> Stance:
    """Of one request. Raises LookupError where vLLM is not understood."""
    original = inspect.unwrap(type(manager).grammar_bitmask)
    found = stances(manager, original, {request.request_id: request}, [request.request_id])
    if found is None:
        raise LookupError("vLLM does not say whether a request is constrained yet")
    return found[0]
