"""Masks and steps of a whole batch of guides, of many indexes, in one kernel call.

A known mask costs a look-up and stays in compiled code for the entire batch. Missing masks are computed by one or
more threads (`cold`, `team`) and entered into the shared table. A guide that fails (budget) fails alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dotllm import cpus
from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine.arena import FUEL
from dotllm.errors import SpecError
from dotllm.index.cold import addresses, by_machine, enter_rows, find_rows, help_forever
from dotllm.index.guide import Guide
from dotllm.index.index import Index
from dotllm.index.kernels import NEEDS_ROW, advance_batch, copy_rows, known_rows
from dotllm.index.team import Team
from dotllm.index.token_space import CONTENTS, TokenSpace

THREADS = min(8, cpus.usable())
_MISSES_PER_THREAD = 8  # fewer are not worth a thread
_CHUNK = 64  # masks computed before they are entered: bounds memory, 1 MB at 131k tokens
_FAILED = -2  # instead of a row, until the others have theirs
_NO_TARGETS = np.empty(0, np.int32)
_TEAM = Team(help_forever)

Failures = dict[int, SpecError]
"""By position in the batch why a guide failed; without tracebacks, whose frames would hold the whole batch."""


def _machines(guides: Sequence[Guide]) -> Int64:
    return np.frombuffer(bytearray().join([guide.index.machine for guide in guides]), np.int64)


def _configs(guides: Sequence[Guide]) -> Int32:
    return np.array([guide.config for guide in guides], np.int32)


class Desk:
    """Arrays for the masks of one chunk, kept for the next (memory fresh from the operating system costs as much as to
    compute a mask in it)."""

    __slots__ = ("codes", "found", "order", "room", "starts", "taken")

    def __init__(self, space: TokenSpace) -> None:
        self.order, self.codes, guesses, places = np.zeros((4, _CHUNK), np.int32)
        self.starts = np.zeros(_CHUNK + 1, np.int32)
        self.taken = np.zeros(_CHUNK, np.int64)
        self.found = (self.order, self.starts, self.taken, self.codes, np.zeros(_CHUNK, np.int64), guesses, places)
        """What the kernels of `cold` take."""
        self.room = np.empty((_CHUNK + _CHUNK // _MISSES_PER_THREAD, space.words), np.int32)
        """A row for each guide, and one with which each thread looks whether its mask is new."""


class Locks:
    """Holds the locks of the indexes of some guides, always taken in the same order (an ExitStack costs more)."""

    __slots__ = ("_locks",)

    def __init__(self, guides: Sequence[Guide]) -> None:
        self._locks = sorted({guide.index.lock for guide in guides}, key=id)

    def __enter__(self) -> None:
        for lock in self._locks:
            lock.acquire()

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


def mask_rows(guides: Sequence[Guide], threads: int = THREADS, stop: Int64 | None = None) -> tuple[Int32, Failures]:
    """The row of every guide's mask in `Index.masks`, int32 [n]; and for guides that failed (row -1) why.

    All guides must be of one vocabulary. stop: int64 [1]; when somebody sets it to what is not 0, no further mask is
    begun, and the rows of those left are NEEDS_ROW (-1).
    """
    rows, failures, _ = _rows(guides, threads, None, _NO_TARGETS, stop)
    return rows, failures


def _rows(
    guides: Sequence[Guide], threads: int, bitmask: Int32 | None, targets: Int32, stop: Int64 | None = None
) -> tuple[Int32, Failures, Bool]:
    """`mask_rows`; new masks are computed in their places in ``bitmask``, if there is one: where that was so."""
    rows = np.empty(len(guides), np.int32)
    written = np.zeros(len(guides), np.bool_)
    failures: Failures = {}
    if not guides:
        return rows, failures, written
    with Locks(guides):
        machines, configs = _machines(guides), _configs(guides)
        missing = known_rows(machines, configs, rows)
        if missing:
            _find(guides, missing, machines, configs, rows, failures, threads, bitmask, targets, written, stop)
        if guides[0].index.space.remembering:
            _remember(guides, rows, failures)
            written[:] = False
    return rows, failures, written


def _remember(guides: Sequence[Guide], rows: Int32, failures: Failures) -> None:
    """Set the rows of guides whose masks are their own."""
    for i, guide in enumerate(guides):
        if guide.remembers and i not in failures:
            try:
                rows[i] = guide.mask_row
            except SpecError as error:
                rows[i] = -1
                failures[i] = error.with_traceback(None)


def _find(
    guides: Sequence[Guide], missing: int, machines: Int64, configs: Int32, rows: Int32, failures: Failures,
    threads: int, bitmask: Int32 | None, targets: Int32, written: Bool, stop: Int64 | None,
) -> None:  # fmt: skip
    """Compute the masks of all guides whose rows are NEEDS_ROW, so many."""
    stop_at = 0 if stop is None else stop.ctypes.data
    space = guides[0].index.space
    desk = space.desks.pop() if space.desks else Desk(space)
    room = desk.room if bitmask is None else bitmask
    while missing and not (stop is not None and stop[0]):
        groups = by_machine(machines, rows, desk.order, desk.starts)
        count = min(missing, _CHUNK)
        use = max(1, min(threads, groups, count // _MISSES_PER_THREAD))
        desk.taken[:] = 0
        with space.lock:
            since = int(space.rows_used[CONTENTS])
        found = (*desk.found, room, targets, rows, written, stop_at)
        job = (addresses(space), machines, configs, groups, use, FUEL, *found)
        if not _TEAM.work(use - 1, partial(_compute, job)):
            raise MemoryError("no memory for a mask")
        with space.lock:
            left = enter_rows(machines, configs, groups, *space.row_store, since, *desk.found, room, rows)
        missing -= count
        if left:
            _recover(guides, desk, rows, failures)
            machines = _machines(guides)
            missing = int(np.count_nonzero(rows == NEEDS_ROW))
    for i in failures:
        rows[i], written[i] = -1, False
    if len(space.desks) < THREADS:
        space.desks.append(desk)


def _compute(job: tuple[Any, ...], board: Int64, doors: Int64) -> bool:
    return bool(find_rows(board, doors, *job))


def recover_each(asked: Iterable[tuple[int, Index, int]]) -> Failures:
    """Do what kernels have asked for by their error codes: (guide, its index, code). By guide why it is impossible.

    Once for each index and code, however many guides of a batch have met it: they all try again, and only what one of
    them then still lacks grows further. (To grow a region for each would double it for each.)
    """
    refusals: dict[tuple[Index, int], SpecError | None] = {}
    failures: Failures = {}
    for i, index, code in asked:
        if (index, code) not in refusals:
            try:
                refusals[index, code] = None
                index.recover(code)
            except SpecError as error:
                refusals[index, code] = error.with_traceback(None)
        refusal = refusals[index, code]
        if refusal is not None:
            failures[i] = refusal
    return failures


def _recover(guides: Sequence[Guide], desk: Desk, rows: Int32, failures: Failures) -> None:
    """Do what the errors of `cold.enter_rows` ask for; guides for which that is impossible have failed."""
    met = [(int(desk.order[k]), int(desk.codes[k])) for k in np.flatnonzero(desk.codes < 0).tolist()]
    refused = recover_each((i, guides[i].index, code) for i, code in met)
    for i, refusal in refused.items():
        for j, guide in enumerate(guides):
            if guide.index is guides[i].index and guide.config == guides[i].config:  # those that had no mask of theirs
                rows[j], failures[j] = _FAILED, refusal


def fill_masks(
    guides: Sequence[Guide], bitmask: Int32, targets: Sequence[int] | None = None, threads: int = THREADS
) -> Failures:
    """Write the mask of guides[i] into ``bitmask[targets[i]]`` (default: row i). A failed guide's row is all zero.

    bitmask: int32 [rows, at least words], C-contiguous; targets: distinct.
    """
    if not guides:
        return {}
    where = np.arange(len(guides), dtype=np.int32) if targets is None else np.asarray(targets, np.int32)
    rows, failures, written = _rows(guides, threads, bitmask, where)
    copy_rows(guides[0].index.space.rows, rows, bitmask, where, written)
    return failures


def _advance_remembering(
    guides: Sequence[Guide], tokens: Sequence[int], accepted: list[bool], failures: Failures
) -> None:
    for i, guide in enumerate(guides):
        if guide.remembers:
            try:
                accepted[i] = guide.advance(tokens[i])
            except SpecError as error:
                failures[i] = error.with_traceback(None)


def advance_guides(guides: Sequence[Guide], tokens: Sequence[int]) -> tuple[list[bool], Failures]:
    """`Guide.advance` for each of ``guides``, which must be distinct; and for guides that failed why."""
    accepted = [False] * len(guides)
    failures: Failures = {}
    if not guides:
        return accepted, failures
    space = guides[0].index.space
    todo = list(range(len(guides)))
    with Locks(guides):
        if space.remembering:
            todo = [i for i in todo if not guides[i].remembers]
            _advance_remembering(guides, tokens, accepted, failures)
        while todo:
            mine = [guides[i] for i in todo]
            out = np.empty(len(mine), np.int32)
            advance_batch(
                _machines(mine), _configs(mine), np.array([tokens[i] for i in todo], np.int32),
                space.token_data, space.token_offset, space.ends, space.words, FUEL, out,
            )  # fmt: skip
            met = []
            for i, after in zip(todo, out.tolist(), strict=True):
                if after >= 0:
                    guides[i].move(after)
                    accepted[i] = True
                elif after < NEEDS_ROW:
                    met.append((i, guides[i].index, after))
            failures.update(recover_each(met))
            todo = [i for i, _, _ in met if i not in failures]
    return accepted, failures
