"""A user's logits processor, made for each sequence: it has state, and fails if it is ever shown a changed past."""

from __future__ import annotations

from typing import Any, ClassVar

import dotllm


class NoTokenTwice:
    """Forbids the last token of the prompt and all tokens of the answer, which it collects as they come."""

    alive: ClassVar[int] = 0
    most_at_once: ClassVar[int] = 0

    def __init__(self) -> None:
        self.seen: list[int] = []
        NoTokenTwice.alive += 1
        NoTokenTwice.most_at_once = max(NoTokenTwice.alive, NoTokenTwice.most_at_once)

    def __del__(self) -> None:
        NoTokenTwice.alive -= 1

    def __call__(self, prompt_ids: list[int], output_ids: list[int], logits: Any) -> Any:
        assert output_ids[: len(self.seen)] == self.seen and min(output_ids, default=0) >= 0, (self.seen, output_ids)
        self.seen += output_ids[len(self.seen) :]
        logits[[prompt_ids[-1], *self.seen]] = float("-inf")
        return logits


@dotllm.logits_processor_factory
def no_token_twice(params: Any) -> NoTokenTwice | None:
    """A processor for requests that ask for one."""
    asked = (params.extra_args or {}).get("no_token_twice", False)
    if asked not in (True, False):
        raise ValueError(f"no_token_twice is true or false, not {asked!r}")
    return NoTokenTwice() if asked else None
