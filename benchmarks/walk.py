"""Walks a text through an engine, token by token, timing every mask and every step; does the same for batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks import clock
from benchmarks.adapters.base import Batch, Bitmask, Compiled, Engine, Matcher


class NotAllowed(Exception):
    """The engine refuses to take a token of a text that satisfies the spec."""

    def __init__(self, position: int, token: int) -> None:
        super().__init__(f"token {token} at position {position}")
        self.position = position


def allowed(bits: Bitmask, token: int) -> bool:
    """Whether a mask row holds a token."""
    return bool(bits[token >> 5] >> (token & 31) & 1)


@dataclass
class Times:
    """Samples in nanoseconds, of masks and steps of walks; and how many masks did not allow the next token."""

    fill: list[int] = field(default_factory=list)
    advance: list[int] = field(default_factory=list)
    wrong_masks: int = 0


def walk(matcher: Matcher, ids: Sequence[int], eos: int, times: Times) -> None:
    """Walk one text to its end, where EOS must be allowed. Raises `NotAllowed` if the engine refuses a step."""
    fill, advance, bits = matcher.fill, matcher.advance, matcher.bits
    clock_ns, overhead = clock.cpu_ns, clock.OVERHEAD_NS
    for position, token in enumerate(ids):
        start = clock_ns()
        fill()
        times.fill.append(max(0, clock_ns() - start - overhead))
        times.wrong_masks += not allowed(bits, token)
        start = clock_ns()
        taken = advance(token)
        times.advance.append(max(0, clock_ns() - start - overhead))
        if not taken:
            raise NotAllowed(position, token)
    times.fill.append(clock.timed(fill))
    times.wrong_masks += not allowed(bits, eos)


@dataclass
class BatchTimes:
    """Nanoseconds per row, one sample per batch call."""

    fill: list[float] = field(default_factory=list)
    fill_ids: list[float] = field(default_factory=list)
    advance: list[float] = field(default_factory=list)
    wrong_masks: int = 0


@dataclass
class Slot:
    """One sequence of a batch: its text and its position."""

    compiled: Compiled
    ids: Sequence[int]
    matcher: Matcher
    position: int = 0


def run_batch(
    engine: Engine, work: Sequence[tuple[Compiled, Sequence[int]]], size: int, steps: int, seed: int = 0
) -> BatchTimes:
    """Time ``steps`` calls for ``size`` sequences over all the work, started at random places of their texts.

    A sequence that ends is replaced by a new one at the start of its text. This is not timed, and neither is making
    the batch. If the engine has row ids, they are timed first: the copy that follows finds every mask known, so
    ``fill_ids`` bears the cost of finding it, and ``fill`` is then a warm mask and its copy.
    """
    order = random.Random(seed)
    slots = []
    for i in range(size):
        compiled, ids = work[i % len(work)]
        slot = Slot(compiled, ids, compiled.matcher(), order.randrange(len(ids)))
        for token in ids[: slot.position]:
            slot.matcher.advance(token)
        slots.append(slot)
    times = BatchTimes()
    batch: Batch | None = None
    for _ in range(steps):
        if batch is None:
            batch = engine.batch([slot.matcher for slot in slots])
        if batch.fill_ids is not None:
            times.fill_ids.append(clock.timed(batch.fill_ids) / size)
        times.fill.append(clock.timed(batch.fill) / size)
        tokens = [slot.ids[slot.position] for slot in slots]
        rows = zip(batch.bits, tokens, strict=True)
        times.wrong_masks += sum(not allowed(bits, token) for bits, token in rows)
        start = clock.cpu_ns()
        batch.advance(tokens)
        times.advance.append(max(0, clock.cpu_ns() - start - clock.OVERHEAD_NS) / size)
        for slot in slots:
            slot.position += 1
            if slot.position == len(slot.ids):
                slot.matcher, slot.position, batch = slot.compiled.matcher(), 0, None
    return times
