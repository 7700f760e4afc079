"""The constrained requests of a server, as the inspector follows them: each one's specification, and its tokens so
far."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dotllm.compilation import Specification
from dotllm.inspector.confidence import UNKNOWN, Place
from dotllm.inspector.inspector import MOST_TOKENS, BadQuestion, Inspector
from dotllm.vocabulary import Vocabulary

MOST_REQUESTS = 32
"""Requests kept: the most recent ones."""


@dataclass
class Live:
    """One request."""

    specification: Specification
    answer_of: Callable[[list[int]], list[int]]
    """Picks the tokens under the constraint out of all tokens; there are none before the reasoning ends."""
    tokens: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """What is known of each of them."""
    end: str = ""
    """Why it has ended; "" while it runs."""


class LiveInspector(Inspector):
    """An `Inspector` that also knows requests, and answers ``requests`` and ``request``."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: str, live: OrderedDict[str, Live]) -> None:
        """``live`` is filled by `begin` and `take`, before there is an inspector."""
        super().__init__(vocabulary, tokenizer)
        self._live = live
        self._questions |= {"requests": self.requests, "request": self.request}

    def requests(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """All known requests, the newest first."""
        return {
            "requests": [
                {"id": name, "kind": one.specification.kind.value, "text": one.specification.text[:80],
                 "tokens": len(one.tokens), "end": one.end}
                for name, one in reversed(list(self._live.items()))
            ]
        }  # fmt: skip

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request with this ``id``: its specification, its tokens, and their masses (null: not known); once it has
        ended, the confidence of its fields, too.

        Raises:
            BadQuestion: the request is not known, or is known no more.
        """
        one = self._live.get(str(body.get("id")))
        if one is None:
            raise BadQuestion("this request is not known any more")
        tokens = one.answer_of(list(one.tokens))[:MOST_TOKENS]
        places = one.places[len(one.tokens) - len(one.answer_of(list(one.tokens))) :][: len(tokens)]
        known = [place.log_mass for place in places]
        masses = [mass if mass is not None and math.isfinite(mass) else None for mass in known]
        fields = self.fields(one.specification, tokens, places) if one.end and any(known) else None
        return one.specification.to_json() | {"tokens": tokens, "mass": masses, "fields": fields, "end": one.end}


def begin(live: OrderedDict[str, Live], name: str, one: Live) -> None:
    """Add a request; the oldest may be forgotten."""
    live[name] = one
    while len(live) > MOST_REQUESTS:
        live.popitem(last=False)


def take(
    live: OrderedDict[str, Live], name: str, tokens: Sequence[int], end: object, places: Sequence[Place] = ()
) -> None:
    """Add ``tokens`` of a request, what is known of them, and its ``end``, if it has come; does nothing if the request
    is not known."""
    one = live.get(name)
    if one is not None:
        new = tokens[: max(0, 2 * MOST_TOKENS - len(one.tokens))]
        one.tokens += new
        one.places += [*places, *[UNKNOWN] * len(new)][: len(new)]
        one.end = "" if end is None else str(end)
