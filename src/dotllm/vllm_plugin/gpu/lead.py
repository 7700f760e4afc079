"""Lead: whether the GPU walks ahead of the engine core, or a step waits for the tokens of the last one.

Walking is free where the device knows the places that tokens lead to. Where it does not, a request repeats its step, so
a text through unknown places takes twice as many steps, and each of them costs the loop more. With a schema of its own
for each request nearly all places are unknown, and 0.5B's tokens took 2.2, 4.6 and 9.0 times as long (1, 32, 256
requests). A step that waits, as vLLM has it, is told all places and repeats nothing: it costs the overlap of
asynchronous scheduling, which is much less. So the share of tokens that lead to unknown places decides, in both modes:
what fills the tables (`prefetch`) goes on meanwhile. Figures: docs/decisions/waiting.md.
"""

from __future__ import annotations

WAIT = 0.1  # share of unknown places from which on steps wait
GO = 0.05  # and below which they do not any more
RATE = 1 / 16  # of a step, in the average
FULL_WEIGHT_REQUESTS = 2  # requests; a step of fewer says less


class Lead:
    """One per engine core."""

    def __init__(self) -> None:
        self.unknown = 0.0
        """share of tokens that came to places which the device did not know, smoothed"""
        self.waits = False
        """whether steps are to wait"""

    def took(self, tokens: int, unknown: int) -> None:
        """A step's tokens have been taken, and ``unknown`` of them led where the tables did not."""
        if not unknown and self.unknown < 1e-3:
            return
        rate = RATE * min(1.0, tokens / FULL_WEIGHT_REQUESTS)
        self.unknown += rate * (unknown / tokens - self.unknown)
        self.waits = self.unknown > (GO if self.waits else WAIT)
