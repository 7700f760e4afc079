"""The constrained requests of a server, as the inspector follows them: what each must be, and its tokens so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dotllm.compilation import Specification
from dotllm.inspector.inspector import MOST_TOKENS, BadQuestion, Inspector
from dotllm.vocabulary import Vocabulary

MOST_REQUESTS = 32
"""The last ones are kept."""


@dataclass
class Live:
    """One request."""

    specification: Specification
    answer_of: Callable[[list[int]], list[int]]
    """Of all its tokens those under the constraint, which are none before the reasoning ends."""
    request: Any = None
    """The server's own."""
    tokens: list[int] = field(default_factory=list)
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
        """All that are known, the newest first."""
        return {
            "requests": [
                {"id": name, "kind": one.specification.kind.value, "text": one.specification.text[:80],
                 "tokens": len(one.tokens), "end": one.end}
                for name, one in reversed(list(self._live.items()))
            ]
        }  # fmt: skip

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The one with this ``id``: its specification and its tokens.

        Raises:
            BadQuestion: it is not known (any more).
        """
        one = self._live.get(str(body.get("id")))
        if one is None:
            raise BadQuestion("this request is not known any more")
        return one.specification.to_json() | {"tokens": one.answer_of(list(one.tokens))[:MOST_TOKENS], "end": one.end}


def begin(live: OrderedDict[str, Live], name: str, one: Live) -> None:
    """A request has come; the oldest may be forgotten."""
    live[name] = one
    while len(live) > MOST_REQUESTS:
        live.popitem(last=False)


def take(live: OrderedDict[str, Live], name: str, tokens: Sequence[int], end: object) -> None:
    """``tokens`` of a request have come, and perhaps its ``end``; nothing for one that is not known."""
    one = live.get(name)
    if one is not None:
        one.tokens += tokens[: max(0, 2 * MOST_TOKENS - len(one.tokens))]
        one.end = "" if end is None else str(end)
