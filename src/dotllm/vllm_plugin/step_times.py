"""How long steps take, with and without drafts, measured while the engine runs; and so which drafts pay.

A step that verifies drafts takes longer than one that generates a token a request: there are more tokens and more rows
of logits, the rejection sampler runs, and vLLM has CUDA graphs only for some shapes (on an H200 a step of 256 requests
with drafts of many lengths takes more than twice as long; see ``docs/decisions/coalescence.md``). How much depends on
model, host, batch and release, so there is no rule but the clock.

Times are kept by batch size (to the power of two) as medians of the last few: a pause of the interpreter or a kernel
that is compiled at its first use must not decide anything. The sizes not seen yet are guessed from those next to them.

`jump_forward.pace` asks the same for asynchronous scheduling, where a step's time is guessed from two that overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

PLAIN, WITHIN, BEYOND = range(3)
"""Kinds of steps: without drafts; with drafts; with drafts that make it larger than vLLM's largest graph."""

SAMPLES = 3  # before a median is believed
AGAIN = 100  # decisions for drafts, after which a plain step is timed again
SOON = 3  # the same, where plain steps of this size are not known yet
ALLOWANCE = 0.01  # of the time of steps without drafts may be lost by trying whether drafts pay by now
MIN_ALLOWANCE = 0.2  # of that allowance, before anything is tried
DOUBT = 4.0  # an estimate may be wrong by this factor; beyond that, trying is pointless

# What drafts are taken to cost before any were seen, in plain steps.
GUESS = {PLAIN: 0.0, WITHIN: 0.25, BEYOND: 1.25}


class Option(NamedTuple):
    """Drafts that could be verified: the steps of single requests that they save, and what they make of the step."""

    saved: float
    kind: int


class Times:
    """Of batches of one size."""

    def __init__(self) -> None:
        self.plain: dict[int, deque[float]] = {}  # seconds, by the bits of the number of tokens
        self.extra: dict[int, deque[float]] = {kind: deque(maxlen=5) for kind in (WITHIN, BEYOND)}  # over plain ones
        self.kept = 0  # decisions for drafts since the last plain step
        self.allowance = 0.0

    def plain_time(self, bits: int) -> float | None:
        """Of a step of ``bits`` tokens; of another number if that is not known; None if none is."""
        known = {b: times for b, times in self.plain.items() if len(times) >= SAMPLES}
        if not known:
            return None
        return median(known[bits if bits in known else min(known)])


class StepTimes:
    """See the module."""

    def __init__(self, graph_tokens: int = 0) -> None:
        """graph_tokens: of the largest step that vLLM has a graph for, 0 if it has none."""
        self.graph_tokens = graph_tokens
        self.tries = False
        """Whether the last choice was made to find out, and not because it is expected to pay."""
        self._times: dict[int, Times] = {}  # by the bits of the number of requests

    def kind(self, tokens: int, drafts: int) -> int:
        """Of a step of ``tokens`` besides its drafts."""
        if not drafts:
            return PLAIN
        return BEYOND if tokens <= self.graph_tokens < tokens + drafts else WITHIN

    def learn(self, requests: int, tokens: int, drafts: int, took: float) -> None:
        """A step of ``tokens`` tokens and ``drafts`` besides has taken ``took`` seconds."""
        if not 0 < took < 1 or tokens > max(self.graph_tokens, 4 * requests + 256):
            return  # an engine that waited; a long prompt
        times = self._of(requests)
        plain = times.plain.setdefault(tokens.bit_length(), deque(maxlen=7))
        if not drafts:
            plain.append(took)
            times.kept = 0
        elif len(plain) >= SAMPLES:
            times.extra[self.kind(tokens, drafts)].append(took - median(plain))

    def choose(self, requests: int, options: Sequence[Option], without: int = PLAIN, steps: int = 1) -> int | None:
        """The number of the option that pays best, None if none pays; ``without`` is the kind of the step otherwise.
        ``steps`` are those since the last choice.

        What counts is the time of all requests together: an option pays if the steps that it saves some of them take
        longer than the step will take longer for each.
        """
        self.tries = False
        times = self._of(requests)
        own = times.plain_time(requests.bit_length())
        plain = self.plain(requests) if own is None else own
        if plain is None:
            return next((number for number, option in enumerate(options) if option.kind == without), None)
        costs = [requests * max(0.0, self.extra(requests, o.kind) - self.extra(requests, without)) for o in options]
        gains = [option.saved * plain - cost for option, cost in zip(options, costs, strict=True)]
        best = max(range(len(gains)), key=gains.__getitem__)
        if gains[best] > 0:
            times.kept += without == PLAIN
            if times.kept <= (SOON if own is None else AGAIN):
                return best
            times.kept = 0
            return None
        times.allowance += ALLOWANCE * steps
        loss, cost = -gains[best] / (requests * plain), costs[best]
        if len(times.extra[options[best].kind]) < SAMPLES:  # a guess, or a sample that something else disturbed
            loss, cost = min(loss, 1.0), min(cost, requests * GUESS[options[best].kind] * plain)
        if options[best].saved * plain * DOUBT < cost or times.allowance < max(loss, MIN_ALLOWANCE):
            return None
        times.allowance = 0.0
        self.tries = True
        return best

    def plain(self, requests: int) -> float | None:
        """What a plain step takes, of the nearest size where that is known; None if none is."""
        size = requests.bit_length()
        for other in sorted(self._times, key=lambda other: abs(other - size)):
            found = self._times[other].plain_time(other)
            if found is not None:
                return found
        return None

    def extra(self, requests: int, kind: int) -> float:
        """How much longer a step of this kind takes than a plain one."""
        if kind == PLAIN:
            return 0.0
        size = requests.bit_length()
        known = [other for other, times in self._times.items() if times.extra[kind]]
        if known:
            return max(0.0, median(self._times[min(known, key=lambda other: abs(other - size))].extra[kind]))
        plain = self.plain(requests) or 0.0
        if kind == BEYOND:
            return self.extra(requests, WITHIN) + (GUESS[BEYOND] - GUESS[WITHIN]) * plain
        return GUESS[kind] * plain

    def _of(self, requests: int) -> Times:
        return self._times.setdefault(requests.bit_length(), Times())


def median(values: Sequence[float]) -> float:
    """The middle one, of an even number the lower one."""
    return sorted(values)[(len(values) - 1) // 2]
