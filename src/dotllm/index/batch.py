"""Masks and steps of a whole batch of guides, of many indexes, in one kernel call.

A known mask costs a look-up and stays in compiled code for the entire batch. Missing masks are computed by one or
more threads (kernels run without the GIL; guides of one index stay together, because an arena belongs to one thread
at a time), then entered into the shared table one after another. A guide that fails (budget) fails alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dotllm.arrays import Int32
from dotllm.automata.machine.arena import FUEL
from dotllm.errors import SpecError
from dotllm.index.guide import Guide
from dotllm.index.index import Index
from dotllm.index.kernels import NEEDS_ROW, advance_batch, copy_rows, find_rows, known_rows, remember_rows
from dotllm.index.token_space import TokenSpace

THREADS = max(1, min(8, (os.cpu_count() or 1)))
_MISSES_PER_THREAD = 8  # fewer are not worth a thread
_SHARES_PER_THREAD = 4
_SCRATCH_ROWS = 64  # masks computed before they are entered: bounds memory, 1 MB at 131k tokens

Failures = dict[int, SpecError]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, THREADS - 1), thread_name_prefix="dotllm-masks")


def _machines(guides: Sequence[Guide]) -> NDArray[np.int64]:
    return np.array([x for guide in guides for x in guide.index.machine], np.int64)


def _configs(guides: Sequence[Guide]) -> Int32:
    return np.array([guide.config for guide in guides], np.int32)


def _token_rows(guides: Sequence[Guide]) -> NDArray[np.int64]:
    return np.array([x for guide in guides for x in guide.index.token_rows_machine], np.int64)


class Locks:
    """Holds the locks of the indexes of some guides, always taken in the same order (an ExitStack costs more)."""

    __slots__ = ("_locks",)

    def __init__(self, guides: Sequence[Guide]) -> None:
        self._locks = [index.lock for index in sorted({guide.index for guide in guides}, key=id)]

    def __enter__(self) -> None:
        for lock in self._locks:
            lock.acquire()

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


def mask_rows(guides: Sequence[Guide], threads: int = THREADS) -> tuple[Int32, Failures]:
    """The row of every guide's mask in `Index.masks`, int32 [n]; and for guides that failed (row -1) why.

    All guides must be of one vocabulary.
    """
    rows = np.empty(len(guides), np.int32)
    failures: Failures = {}
    if not guides:
        return rows, failures
    with Locks(guides):
        known_rows(_machines(guides), _configs(guides), rows)
        missing = [int(i) for i in np.nonzero(rows < 0)[0]]
        for first in range(0, len(missing), _SCRATCH_ROWS):
            _find(guides, missing[first : first + _SCRATCH_ROWS], rows, failures, threads)
        if guides[0].index.space.remembering:
            _remember(guides, rows, failures)
    return rows, failures


def _remember(guides: Sequence[Guide], rows: Int32, failures: Failures) -> None:
    """Set the rows of guides whose masks are their own."""
    for i, guide in enumerate(guides):
        if guide.remembers and i not in failures:
            try:
                rows[i] = guide.mask_row
            except SpecError as error:
                rows[i] = -1
                failures[i] = error


def _find(guides: Sequence[Guide], missing: list[int], rows: Int32, failures: Failures, threads: int) -> None:
    """Compute the masks of ``guides[i]`` for i in ``missing`` and set rows[i]."""
    space = guides[0].index.space
    while missing:
        # one group per index; guides at the same place need one mask only
        groups: dict[Index, dict[int, list[int]]] = {}
        for i in missing:
            groups.setdefault(guides[i].index, {}).setdefault(guides[i].config, []).append(i)
        chosen = [(index, members[0]) for index, places in groups.items() for members in places.values()]
        use = min(threads, len(groups), max(1, len(chosen) // _MISSES_PER_THREAD))
        shares: list[list[int]] = [[] for _ in range(min(len(groups), _SHARES_PER_THREAD * use if use > 1 else 1))]
        for places in sorted(groups.values(), key=len, reverse=True):
            min(shares, key=len).extend(members[0] for members in places.values())
        buffer = _borrow(space)
        results = _compute_all(guides, shares, buffer, use)
        missing = []
        for share, (codes, scratch) in zip(shares, results, strict=True):
            mine = [guides[i] for i in share]
            numbers = space.intern_all(scratch, codes)
            outcomes = np.empty(len(share), np.int32)
            remember_rows(_machines(mine), _configs(mine), codes, numbers, outcomes)
            for i, row, outcome in zip(share, numbers.tolist(), outcomes.tolist(), strict=True):
                index, config = guides[i].index, guides[i].config
                members = groups[index][config]
                try:
                    if outcome < 0:
                        index.recover(outcome)
                        missing.extend(members)
                    elif row < 0:
                        raise space.full()
                    else:
                        rows[members] = row
                except SpecError as error:
                    rows[members] = -1
                    failures.update(dict.fromkeys(members, error))
        if len(space.spare_rows) < THREADS:
            space.spare_rows.append(buffer)


def _compute_all(
    guides: Sequence[Guide], shares: list[list[int]], buffer: Int32, threads: int
) -> list[tuple[Int32, Int32]]:
    """`_compute` for each share. Shares are small and taken one after another, by the caller too: a thread that wakes
    up late, or on a core whose caches are cold, takes fewer, and one that has not by the end is not waited for."""
    results: dict[int, tuple[Int32, Int32]] = {}
    first = np.cumsum([0, *map(len, shares)]).tolist()
    queue = iter(range(len(shares)))  # (its next() is one step to other threads)

    def work() -> None:
        for k in queue:
            results[k] = _compute(guides, shares[k], buffer[first[k] : first[k + 1]])

    others = [_pool().submit(work) for _ in range(threads - 1)]
    work()
    for other in others:
        if not other.cancel():
            other.result()
    return [results[k] for k in range(len(shares))]


def _borrow(space: TokenSpace) -> Int32:
    """Room for the masks of one chunk, which memory fresh from the operating system costs as much as to compute."""
    try:
        return space.spare_rows.pop()
    except IndexError:
        return np.empty((_SCRATCH_ROWS, space.words), np.int32)


def _compute(guides: Sequence[Guide], share: list[int], scratch: Int32) -> tuple[Int32, Int32]:
    """Compute the masks of some guides into ``scratch``, a row each; see `kernels.find_rows` for the codes."""
    space = guides[0].index.space
    mine = [guides[i] for i in share]
    codes = np.empty(len(mine), np.int32)
    find_rows(
        _machines(mine), _configs(mine), _token_rows(mine), space.trie_byte, space.trie_depth, space.trie_end,
        space.trie_token_start, space.trie_tokens, space.main_end, space.sets, space.set_rows, space.set_ints,
        space.eos,
        FUEL, np.arange(len(mine), dtype=np.int32), codes, scratch,
    )  # fmt: skip
    return codes, scratch


def fill_masks(
    guides: Sequence[Guide], bitmask: Int32, targets: Sequence[int] | None = None, threads: int = THREADS
) -> Failures:
    """Write the mask of guides[i] into ``bitmask[targets[i]]`` (default: row i). A failed guide's row is all zero.

    bitmask: int32 [rows, at least words], C-contiguous.
    """
    rows, failures = mask_rows(guides, threads)
    if not guides:
        return failures
    where = np.arange(len(guides), dtype=np.int32) if targets is None else np.asarray(targets, np.int32)
    if failures:
        failed = list(failures)
        bitmask[where[failed]] = 0
        good = rows >= 0
        rows, where = rows[good], where[good]
    copy_rows(guides[0].index.space.rows, rows, bitmask, where)
    return failures


def _advance_remembering(
    guides: Sequence[Guide], tokens: Sequence[int], accepted: list[bool], failures: Failures
) -> None:
    for i, guide in enumerate(guides):
        if guide.remembers:
            try:
                accepted[i] = guide.advance(tokens[i])
            except SpecError as error:
                failures[i] = error


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
                _machines(mine), _configs(mine), _token_rows(mine), np.array([tokens[i] for i in todo], np.int32),
                space.token_data, space.token_offset, space.ends, space.words, FUEL, out,
            )  # fmt: skip
            again = []
            for i, after in zip(todo, out.tolist(), strict=True):
                if after >= 0:
                    guides[i].move(after)
                    accepted[i] = True
                elif after < NEEDS_ROW:
                    try:
                        guides[i].index.recover(after)
                        again.append(i)
                    except SpecError as error:
                        failures[i] = error
            todo = again
    return accepted, failures
