"""Masks and steps for a whole batch of guides, on any number of indexes, in one kernel call.

A known mask is a look-up; all look-ups of a batch stay in compiled code. One or more threads compute missing masks
(`mask_misses`, `helper_pool`) and enter them into the shared table. A guide that exceeds its budget fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine.arena import FUEL, HURRIED_FUEL, ArenaFull
from dotllm.automata.machine.layout import FINISHED
from dotllm.automata.machine.masks import known_row
from dotllm.errors import EngineFault, SpecError
from dotllm.index.callers import (
    NO_CONFIGURATION,
    NO_SIGNATURE,
    OTHER_VOCABULARY,
    WRONG_COUNT,
    error_of,
    integers,
    no_configuration,
    no_threads,
    not_a_bitmask,
)
from dotllm.index.guide import Guide
from dotllm.index.helper_pool import NO_HELPERS, HelperPool
from dotllm.index.kernels import NEEDS_ROW, advance_batch, copy_rows, fill_known, known_rows
from dotllm.index.mask_misses import (
    AT_FUEL,
    CHUNK,
    CODES,
    MISSES_PER_THREAD,
    NO_TARGETS,
    ORDER,
    MaskScratch,
    by_machine,
    enter_rows,
    find_row_alone,
    find_rows,
    help_forever,
    take_scratch,
)
from dotllm.index.mask_table import CONTENTS, END_ROW
from dotllm.index.walkable import Locks, Walkable, machines_of
from dotllm.system import usable_cpus

THREADS = min(8, usable_cpus())
_FAILED = -2  # in place of a failed guide's row, until all other rows are found
_POOL = HelperPool(help_forever)

Failure: TypeAlias = SpecError | EngineFault
Failures = dict[int, Failure]
"""Why guides failed, by their positions in the batch. The errors have no tracebacks, whose frames would keep the whole
batch alive."""


def _configs(guides: Sequence[Guide]) -> Int32:
    return np.array([guide.config for guide in guides], np.int32)


def mask_rows(guides: Sequence[Guide], threads: int = THREADS) -> tuple[Int32, Failures]:
    """Find the rows of the guides' masks in `Index.masks`. Returns int32 [n] (-1: the guide failed), and the failures.

    Raises:
        ValueError: the guides are of different vocabularies; or ``threads`` is below 1.
        IndexError: a guide has been set to a configuration that its index does not have.
    """  # noqa: DOC501 - functions make the errors
    if threads < 1:
        raise no_threads(threads)
    if not guides:
        return np.empty(0, np.int32), {}
    indexes = [guide.index for guide in guides]
    with Locks(indexes):
        rows, failures = rows_of(indexes, _configs(guides), threads, guides)
        if indexes[0].space.has_stateful_guides:
            _set_own_rows(guides, rows, failures)
    return rows, failures


def rows_of(
    indexes: list[Walkable], configs: Int32, threads: int = THREADS, guides: Sequence[Guide] = (), *,
    hurried: bool = False,
) -> tuple[Int32, Failures]:  # fmt: skip
    """Find the rows of configurations' masks. Returns int32 [n] (-1: the configuration failed), and the failures.

    configs int32 [n]: configs[i] is a configuration of indexes[i]. ``guides``: the guides at these configurations, if
    any. A guide whose index is full moves on, and its entries in ``indexes`` and ``configs`` are set to its new place.
    ``hurried``: a mask that takes more than about a millisecond fails (`Unfinished`). Hold the locks of the indexes.

    Raises:
        ValueError: the indexes are of different vocabularies.
        IndexError: an index has no such configuration.
    """
    rows = np.empty(len(configs), np.int32)
    failures: Failures = {}
    machines = machines_of(indexes)
    missing = known_rows(machines, configs, rows)
    if missing < 0:
        raise no_configuration(indexes, configs.tolist()) if missing == NO_CONFIGURATION else error_of(missing)
    if missing:
        written = np.zeros(len(configs), np.bool_)
        _find(indexes, missing, machines, configs, rows, failures, threads, None, NO_TARGETS, written, guides, hurried)
    return rows, failures


def row_of(index: Walkable, config: int) -> int:
    """Find the row of one configuration's mask. Hold the index's lock. Raises as `GrammarIndex.mask_row`."""
    if config == FINISHED:
        return END_ROW
    row = int(known_row(index.mem, config))
    if row >= 0:
        return row
    space = index.space
    free, scratch = take_scratch(space)
    scratch.config[0] = config
    while row < 0:
        scratch.machine[:] = np.frombuffer(index.machine, np.int64)
        scratch.row[0] = NEEDS_ROW
        with space.lock:
            since = space.rows_used.item(CONTENTS)
        find_row_alone(scratch.job_alone)
        alone, chunk = (scratch.machine, scratch.config), (scratch.ints, scratch.longs, scratch.rows)
        with space.lock:
            enter_rows(scratch.space, *alone, 1, since, *chunk, scratch.row)
        row, code = scratch.row.item(), scratch.ints.item(CODES, 0)
        if row < 0 and code < 0:
            index.recover(code)
    if len(free) < THREADS:
        free.append(scratch)
    return row


def for_each_stateful(guides: Sequence[Guide], failures: Failures, act: Callable[[int, Guide], None]) -> None:
    """Call act(i, guides[i]) for the stateful guides that have not failed. A guide that is refused fails."""
    for i, guide in enumerate(guides):
        if guide.is_stateful and i not in failures:
            try:
                act(i, guide)
            except (SpecError, EngineFault) as error:
                failures[i] = error.with_traceback(None)


def _set_own_rows(guides: Sequence[Guide], rows: Int32, failures: Failures) -> None:
    """Set the rows of stateful guides, whose masks depend on more than their configuration."""

    def set_row(i: int, guide: Guide) -> None:
        rows[i] = -1  # if it fails
        rows[i] = guide.mask_row

    for_each_stateful(guides, failures, set_row)


def _find(
    indexes: list[Walkable], missing: int, machines: Int64, configs: Int32, rows: Int32, failures: Failures,
    threads: int, bitmask: Int32 | None, targets: Int64, written: Bool, guides: Sequence[Guide], hurried: bool = False,
) -> None:  # fmt: skip
    """Compute the masks of the configurations whose rows are NEEDS_ROW (``missing`` of them), and set their rows.

    With a ``bitmask`` int32 [rows, at least words], the mask of configuration i is computed in bitmask[targets[i]], and
    written[i] is set.

    Raises:
        MemoryError: a thread could not allocate a mask.
    """
    space = indexes[0].space
    free, scratch = take_scratch(space)
    masks = scratch.rows if bitmask is None else bitmask
    while missing:
        groups = by_machine(machines, rows, scratch.ints)
        count = min(missing, CHUNK)
        helpers = min(threads, groups, count // MISSES_PER_THREAD) - 1
        with space.lock:
            since = space.rows_used.item(CONTENTS)
        chunk = (scratch.ints, scratch.longs, masks)
        arguments = (scratch.space, machines, configs, groups, *chunk, targets, rows, written)
        compute = partial(_find_with_fuel, arguments, HURRIED_FUEL if hurried else FUEL)
        done = compute(scratch.job, NO_HELPERS) if helpers < 1 else _POOL.work(helpers, compute)
        if not done:
            raise MemoryError("no memory for a mask")
        with space.lock:
            left = enter_rows(scratch.space, machines, configs, groups, since, *chunk, rows)
        missing -= count
        if left:
            _recover(indexes, configs, scratch, rows, failures, guides, hurried)
            machines = machines_of(indexes)
            missing = int(np.count_nonzero(rows == NEEDS_ROW))
    for i in failures:
        rows[i], written[i] = -1, False
    if len(free) < THREADS:
        free.append(scratch)


def _find_with_fuel(arguments: tuple[Any, ...], fuel: int, job: Int64, wake_fds: Int64) -> bool:
    job[AT_FUEL] = fuel
    return bool(find_rows(job, wake_fds, *arguments))


def recover_each(asked: Iterable[tuple[int, Walkable, int]], *, hurried: bool = False) -> Failures:
    """Recover from the error codes of kernels: (guide, its index, code). Returns which guides cannot recover, and why.

    An index recovers once from a code, however many guides of a batch have met it. Then all of them try again, and a
    region that is still too small grows further. (Growing a region for each guide would double it each time.)
    """
    refusals: dict[tuple[Walkable, int], Failure | None] = {}
    failures: Failures = {}
    for i, index, code in asked:
        if (index, code) not in refusals:
            try:
                refusals[index, code] = None
                index.recover(code, hurried=hurried)
            except (SpecError, EngineFault) as error:
                refusals[index, code] = error.with_traceback(None)
        refusal = refusals[index, code]
        if refusal is not None:
            failures[i] = refusal
    return failures


def moved_on(guides: Sequence[Guide], indexes: Sequence[Walkable], failures: Failures) -> list[int]:
    """Let the guides whose ``indexes`` are full move on. Removes those that do from ``failures``, and returns them."""
    full = [i for i, refusal in failures.items() if isinstance(refusal, ArenaFull)]
    moved = [i for i in full if guides[i].index is not indexes[i] or guides[i].move_on()]
    for i in moved:
        del failures[i]
    return moved


def _recover(
    indexes: list[Walkable], configs: Int32, scratch: MaskScratch, rows: Int32, failures: Failures,
    guides: Sequence[Guide], hurried: bool,
) -> None:  # fmt: skip
    """Recover from the errors of `enter_rows`. Where that is impossible, the configuration fails."""
    order, codes = scratch.ints[ORDER].tolist(), scratch.ints[CODES].tolist()
    asked = ((i, indexes[i], code) for i, code in zip(order, codes, strict=True) if code < 0)
    refused = recover_each(asked, hurried=hurried)
    for i, refusal in [*refused.items()]:
        for j in np.flatnonzero(configs == configs[i]).tolist():  # and all others that wait for the same mask
            if indexes[j] is indexes[i]:
                refused[j] = refusal
    for i in moved_on(guides, indexes, refused) if guides else ():
        indexes[i], configs[i] = guides[i].index, guides[i].config
    for i, refusal in refused.items():
        rows[i], failures[i] = _FAILED, refusal


def fill_masks(
    guides: Sequence[Guide], bitmask: Int32, targets: Sequence[int] | None = None, threads: int = THREADS
) -> Failures:
    """Write the mask of guides[i] into ``bitmask[targets[i]]`` (default: row i). A failed guide's row is all zero.

    bitmask: int32 [rows, at least words], C-contiguous; targets: distinct. Nothing is written if this raises.

    Raises:
        TypeError: the bitmask or the targets have the wrong type.
        ValueError: they have the wrong shape, two targets are equal, or the guides are of different vocabularies; or
            ``threads`` is below 1.
        IndexError: the bitmask has no such row, or a guide has been set to a configuration that its index does not
            have.
    """  # noqa: DOC501 - functions make the errors
    if threads < 1:
        raise no_threads(threads)
    failures: Failures = {}
    if not guides:
        return failures
    where = np.arange(len(guides)) if targets is None else integers(targets, "targets")
    indexes = [guide.index for guide in guides]
    space = indexes[0].space
    rows = np.empty(len(guides), np.int32)
    with Locks(indexes):
        machines, configs = machines_of(indexes), _configs(guides)
        stateful = space.has_stateful_guides
        try:
            missing = fill_known(machines, configs, space.rows, bitmask, where, rows, not stateful)
        except NO_SIGNATURE:
            raise not_a_bitmask(bitmask, space.words) from None
        if missing < 0:
            raise error_of(missing, guides, where, bitmask, space.words)
        if not missing and not stateful:
            return failures
        written = np.zeros(len(guides), np.bool_)
        if missing:
            _find(indexes, missing, machines, configs, rows, failures, threads, bitmask, where, written, guides)
        if stateful:
            _set_own_rows(guides, rows, failures)
            written[:] = False
        copy_rows(space.rows, rows, bitmask, where, written)
    return failures


def advance_guides(
    guides: Sequence[Guide], tokens: Sequence[int], *, hurried: bool = False
) -> tuple[list[bool], Failures]:
    """Call `Guide.advance` for each of ``guides``, which must be distinct. Returns the results, and why guides failed.

    ``hurried``: as in `rows_of`. No guide has moved if this raises.

    Raises:
        TypeError: the tokens are not integers.
        ValueError: there is not one token for each guide, or the guides are of different vocabularies.
        IndexError: a guide has been set to a configuration that its index does not have.
    """  # noqa: DOC501 - functions make the errors
    accepted = [False] * len(guides)
    failures: Failures = {}
    if not guides:
        return accepted, failures
    ids = integers(tokens, "tokens")
    mine, indexes = guides, [guide.index for guide in guides]
    space = indexes[0].space
    todo: Sequence[int] = range(len(guides))
    with Locks(indexes):
        if space.has_stateful_guides:
            if len(ids) != len(guides):
                raise error_of(WRONG_COUNT, guides, ids)
            if any(index.space is not space for index in indexes):
                raise error_of(OTHER_VOCABULARY)

            def advance(i: int, guide: Guide) -> None:
                accepted[i] = guide.advance(int(ids[i]))

            for_each_stateful(guides, failures, advance)
            todo = [i for i in todo if not guides[i].is_stateful]
            mine, indexes, ids = [guides[i] for i in todo], [indexes[i] for i in todo], ids[todo]
        while todo:
            out = np.empty(len(mine), np.int32)
            code = advance_batch(
                machines_of(indexes), _configs(mine), ids,
                space.token_data, space.token_offset, space.ends, space.words, HURRIED_FUEL if hurried else FUEL, out,
            )  # fmt: skip
            if code < 0:
                raise error_of(code, mine, ids)
            met: list[tuple[int, Walkable, int]] = []
            for k, after in enumerate(out.tolist()):
                if after >= 0:
                    mine[k].follow(after)
                    accepted[todo[k]] = True
                elif after < NEEDS_ROW:
                    met.append((k, indexes[k], after))
            if not met:
                break
            refused = recover_each(met, hurried=hurried)
            moved_on(mine, indexes, refused)
            failures.update((todo[k], error) for k, error in refused.items())
            again = [k for k, _, _ in met if k not in refused]
            todo, mine = [todo[k] for k in again], [mine[k] for k in again]
            indexes, ids = [guide.index for guide in mine], ids[again]
    return accepted, failures
