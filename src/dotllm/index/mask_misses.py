"""Kernels: the missing masks of a batch, computed by the caller together with helpers (see `helper_pool`).

There are three steps. `by_machine` lists the missing masks. `find_rows` computes them on all available threads; each
thread takes one machine's guides at a time, because an arena belongs to one thread at a time. It also searches the
table of rows, without the table's lock, so the result is a guess. `enter_rows` runs on one thread, with that lock, and
does the little that is left: it confirms the guesses, enters the new rows, and records them in the machines.

A batch is done in chunks. All steps share a chunk's arrays: ``ints`` int32 [5, CHUNK + 1] and ``longs`` int64 [2,
CHUNK], whose rows are named below, and ``scratch`` int32 [rows, words], masks that have no row yet.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.arena import FUEL
from dotllm.automata.machine.masks import find_row, known_row, remember_row
from dotllm.automata.machine.plans import Trie
from dotllm.automata.machine.walk import CharsetTables
from dotllm.index.helper_pool import (
    CONTENT,
    NO_HELPERS,
    close_job,
    enter_job,
    exchange,
    exit_job,
    fetch_add,
    load,
    new_job,
    next_job,
    open_job,
)
from dotllm.index.kernels import B1, I1, I2, L1, MACHINE, NEEDS_ROW, I, copy_row, pointer
from dotllm.index.mask_table import EMPTY_ROW, ROWS_FULL, confirm_row, intern_row, is_empty, likely_row, row_hash
from dotllm.index.token_space import TokenSpace
from dotllm.jit import inner_kernel, kernel

L2 = nb.int64[:, ::1]

CHUNK = 64  # masks computed before they are entered: bounds memory, 1 MB at 131k tokens
ORDER, STARTS, CODES, GUESSES, SCRATCH_ROWS = range(5)  # rows of ``ints``
TAGS, TAKEN = range(2)  # rows of ``longs``
MISSES_PER_THREAD = 8  # fewer masks are not worth a thread
NO_TARGETS, _NOTHING_WRITTEN = np.empty(0, np.int64), np.zeros(1, np.bool_)
DUPLICATE = -1  # not an error (see `find_rows`)
_COPIES = 8  # known rows that a thread takes at a time

SPACE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "trie_byte", "trie_depth", "trie_end", "trie_token_start", "trie_tokens", "trie_below", "sets", "set_rows",
            "set_ints", "eos", "rows", "rows_used", "table", "row_meta", "free",
            "nodes", "main_end", "set_count", "set_width", "set_row_count", "set_ints_size", "eos_count",
            "row_count", "words", "slots",
        )
    ]
)  # fmt: skip
"""The arrays of a token space: their addresses, then their sizes."""

TASK = np.dtype(
    [
        *(
            (name, np.int64)
            for name in (
                "space", "machines", "configs", "ints", "longs", "scratch", "targets", "known", "written",
                "guides", "groups", "threads", "scratch_rows", "scratch_words", "fuel",
            )
        ),
        ("stop", np.int64),
        ("next_scratch_row", np.int64), ("done", np.int64), ("__", np.int64, 6),  # counters: cache lines of their own
        ("copied", np.int64, 8),  # of each thread's stretch
    ]
)  # fmt: skip
"""The words of a job from CONTENT on: addresses of arrays, sizes, counters."""
AT_FUEL, AT_STOP = (CONTENT + TASK.fields[name][1] // 8 for name in ("fuel", "stop"))  # type: ignore[index]
"""The words of a job with the fuel for each mask, and with 1 if no further mask is to be found (`ahead`). The caller of
`find_rows` sets them."""
_STOP, _NEXT_SCRATCH_ROW, _DONE, _COPIED = (
    TASK.fields[name][1]  # type: ignore[index]
    for name in ("stop", "next_scratch_row", "done", "copied")
)


@kernel(nb.int64(L1, I1, I2))
def by_machine(machines: Int64, rows: Int32, ints: Int32) -> int:
    """List the guides whose rows are NEEDS_ROW (at most CHUNK of them) in ints[ORDER], grouped by machine: group g is
    ORDER from STARTS[g] to STARTS[g + 1]. Returns the number of groups."""
    order, starts = ints[ORDER], ints[STARTS]
    groups, n = 0, 0
    for i in range(rows.shape[0]):
        if n == CHUNK:
            break
        if rows[i] != NEEDS_ROW:
            continue
        listed = False
        for g in range(groups):
            if machines[MACHINE * order[starts[g]]] == machines[MACHINE * i]:
                listed = True
                break
        if listed:
            continue
        starts[groups] = n
        groups += 1
        for j in range(i, rows.shape[0]):
            if n < CHUNK and rows[j] == NEEDS_ROW and machines[MACHINE * j] == machines[MACHINE * i]:
                order[n] = j
                n += 1
    starts[groups] = n
    return groups


@inner_kernel(nb.void(L1, I))
def _compute(job: Int64, me: int) -> None:
    """Compute masks as thread ``me``.

    The thread begins with its own stretch of the groups, the same in each step, so that its core's cache has the arenas
    and the rows of the bitmask. Then it helps other threads, from the far ends of their stretches.
    """
    address = nb.int64(job.ctypes.data) + 8 * CONTENT
    task = nb.carray(pointer(address), (1,), TASK)[0]
    groups, threads, guides = task.groups, task.threads, task.guides
    machines = nb.carray(pointer(task.machines), (guides * MACHINE,), nb.int64)
    configs = nb.carray(pointer(task.configs), (guides,), nb.int32)
    ints = nb.carray(pointer(task.ints), (5, CHUNK + 1), nb.int32)
    tags = nb.carray(pointer(task.longs), (CHUNK,), nb.int64)
    scratch = nb.carray(pointer(task.scratch), (task.scratch_rows, task.scratch_words), nb.int32)
    targets = nb.carray(pointer(task.targets), (guides,), nb.int64)
    written = nb.carray(pointer(task.written), (guides,), nb.boolean)
    order, starts, codes, guesses, scratch_rows = (
        ints[ORDER],
        ints[STARTS],
        ints[CODES],
        ints[GUESSES],
        ints[SCRATCH_ROWS],
    )

    space = nb.carray(pointer(task.space), (1,), SPACE)[0]
    words = space.words
    trie = Trie(
        nb.carray(pointer(space.trie_byte), (space.nodes,), nb.uint8),
        nb.carray(pointer(space.trie_depth), (space.nodes,), nb.int32),
        nb.carray(pointer(space.trie_end), (space.nodes,), nb.int32),
        nb.carray(pointer(space.trie_token_start), (space.nodes + 1,), nb.int32),
        nb.carray(pointer(space.trie_tokens), (space.nodes,), nb.int32),
        space.main_end,
        nb.carray(pointer(space.trie_below), (space.main_end, 2), nb.int64),
    )
    eos = nb.carray(pointer(space.eos), (space.eos_count,), nb.int32)
    charsets = CharsetTables(
        nb.carray(pointer(space.sets), (space.set_count, space.set_width), nb.int32),
        nb.carray(pointer(space.set_rows), (space.set_row_count, words), nb.int32),
        nb.carray(pointer(space.set_ints), (space.set_ints_size,), nb.int32),
        eos,  # (only masks with a limit read this and the following arguments)
        0,
        0,
    )
    rows = nb.carray(pointer(space.rows), (space.row_count, words), nb.int32)
    table = nb.carray(pointer(space.table), (space.slots, 2), nb.int64)

    direct = task.targets != 0
    first = me * groups // threads
    own = (me + 1) * groups // threads - first
    target = nb.int64(-1)
    done = 0
    for k in range(groups):
        group = first + k if k < own else (first + own - 1 - k) % groups
        if load(address + _STOP) != 0:
            break
        if exchange(task.longs + 8 * (TAKEN * CHUNK + group), 1) != 0:
            continue
        for i in range(starts[group], starts[group + 1]):
            g = order[i]
            codes[i] = 0
            for j in range(starts[group], i):
                if configs[order[j]] == configs[g]:
                    codes[i] = DUPLICATE
                    break
            if codes[i] == DUPLICATE:
                continue
            if direct:
                target = targets[g]
            elif target < 0:
                target = fetch_add(address + _NEXT_SCRATCH_ROW, 1)
            at = MACHINE * g
            mem = nb.carray(pointer(machines[at]), (machines[at + 1],), nb.int32)
            token_rows = nb.carray(pointer(machines[at + 2]), (machines[at + 3], words), nb.int32)
            mem[L.H_FUEL] = task.fuel
            config = mem[L.AT_CONFIG] + 3 * configs[g]
            row = scratch[target][:words]
            codes[i] = find_row(mem, trie, charsets, token_rows, eos, mem[config], mem[config + 1], row)
            if codes[i] >= 0 and is_empty(row):
                codes[i] = EMPTY_ROW
            if codes[i] < 0:
                continue
            tags[i] = row_hash(row)
            guesses[i] = likely_row(rows, table, tags[i], row)
            scratch_rows[i] = target
            if direct:
                scratch[target][words:] = 0
                written[g] = True
            elif guesses[i] < 0:
                target = nb.int64(-1)
        done += 1
    fetch_add(address + _DONE, done)


@inner_kernel(nb.void(L1, I))
def _copy_known(job: Int64, me: int) -> None:
    """Copy known rows to their targets as thread ``me``: first in its own stretch, then in the others."""
    address = nb.int64(job.ctypes.data) + 8 * CONTENT
    task = nb.carray(pointer(address), (1,), TASK)[0]
    space = nb.carray(pointer(task.space), (1,), SPACE)[0]
    guides, threads = task.guides, task.threads
    rows = nb.carray(pointer(space.rows), (space.row_count, space.words), nb.int32)
    bitmask = nb.carray(pointer(task.scratch), (task.scratch_rows, task.scratch_words), nb.int32)
    targets = nb.carray(pointer(task.targets), (guides,), nb.int64)
    written = nb.carray(pointer(task.written), (guides,), nb.boolean)
    known = nb.carray(pointer(task.known), (guides,), nb.int32)
    for k in range(threads):
        stretch = (me + k) % threads
        first, end = stretch * guides // threads, (stretch + 1) * guides // threads
        begin = first + fetch_add(address + _COPIED + 8 * stretch, _COPIES)
        while begin < end:
            for g in range(begin, min(begin + _COPIES, end)):
                if known[g] >= 0 and not written[g]:
                    copy_row(rows[known[g]], bitmask[targets[g]])
                    written[g] = True
            begin = first + fetch_add(address + _COPIED + 8 * stretch, _COPIES)


@inner_kernel(nb.void(L1, I, nb.boolean))
def _share(job: Int64, me: int, direct: bool) -> None:
    """Do thread ``me``'s part of the job that `find_rows` has written. direct: masks go to a bitmask."""
    _compute(job, me)
    if direct:
        _copy_known(job, me)


@kernel(nb.boolean(L1, L1, L1, L1, I1, I, I2, L2, I2, L1, I1, B1))
def find_rows(
    job: Int64, wake_fds: Int64, space: Int64, machines: Int64, configs: Int32, groups: int, ints: Int32, longs: Int64,
    scratch: Int32, targets: Int64, known: Int32, written: Bool,
) -> bool:  # fmt: skip
    """Compute the missing masks listed by `by_machine`, together with the helpers that ``wake_fds`` wake. Returns
    whether that succeeded (a helper may run out of memory).

    For guide ORDER[i], CODES[i] is the number of symbols that its mask depends on, DUPLICATE if another guide of its
    group has the same mask, or an error; TAGS[i] is the mask's hash; GUESSES[i] is its row (see `likely_row`), or -1 if
    the mask is scratch[SCRATCH_ROWS[i]]. If ``targets`` is not empty, ``scratch`` is a bitmask: the mask of guide g is
    written to its row targets[g], and ``written[g]`` is set; masks whose row ``known[g]`` is known are copied likewise.
    space: from `addresses`.
    """
    task = nb.carray(pointer(nb.int64(job.ctypes.data) + 8 * CONTENT), (1,), TASK)[0]
    direct = targets.shape[0] > 0
    task.space, task.machines, task.configs = space.ctypes.data, machines.ctypes.data, configs.ctypes.data
    task.ints, task.longs, task.scratch = ints.ctypes.data, longs.ctypes.data, scratch.ctypes.data
    task.targets = nb.int64(targets.ctypes.data) if direct else nb.int64(0)
    task.known, task.written = known.ctypes.data, written.ctypes.data
    task.guides, task.groups, task.threads = configs.shape[0], groups, wake_fds.shape[0] + 1
    task.scratch_rows, task.scratch_words = scratch.shape
    task.next_scratch_row = task.done = 0
    for thread in range(task.threads):
        task.copied[thread] = 0
    longs[TAKEN, :groups] = 0
    if wake_fds.shape[0] == 0:
        _share(job, 0, direct)
        return True
    open_job(job, wake_fds)
    _share(job, 0, direct)
    close_job(job)
    return task.done == groups


@kernel(nb.void(L1))
def find_row_alone(job: Int64) -> None:
    """As `find_rows`, for one guide and no helper, with the arrays of the last call of `find_rows` with this ``job``:
    passing them would take as long as computing a small mask."""
    task = nb.carray(pointer(nb.int64(job.ctypes.data) + 8 * CONTENT), (1,), TASK)[0]
    ints = nb.carray(pointer(task.ints), (5, CHUNK + 1), nb.int32)
    longs = nb.carray(pointer(task.longs), (2, CHUNK), nb.int64)
    ints[ORDER, 0], ints[STARTS, 0], ints[STARTS, 1] = 0, 0, 1
    longs[TAKEN, 0] = 0
    task.groups = 1
    task.next_scratch_row = task.done = 0
    _compute(job, 0)


@kernel(nb.void(L1, I, I))
def help_forever(job: Int64, me: int, pipe: int) -> None:
    """The loop of helper ``me``, which does its part whenever there is a job."""
    task = nb.carray(pointer(nb.int64(job.ctypes.data) + 8 * CONTENT), (1,), TASK)[0]
    last = next_job(job, me, pipe, 0)
    while last >= 0:
        if enter_job(job):
            if me < task.threads:  # (an old byte may have let in one helper too many)
                _share(job, me, task.targets != 0)
            exit_job(job)
        last = next_job(job, me, pipe, last)


@kernel(I(L1, L1, I1, I, I, I2, L2, I2, I1))
def enter_rows(
    space: Int64, machines: Int64, configs: Int32, groups: int, since: int, ints: Int32, longs: Int64, scratch: Int32,
    out: Int32,
) -> int:  # fmt: skip
    """Intern the masks that `find_rows` has found, and remember the rows in the machines. out[ORDER[i]] is the row, or
    still NEEDS_ROW: find it again, after recovering from CODES[i] if that is below 0. Returns how many rows are still
    needed.

    since: `CONTENTS` when `find_rows` was called. Hold the lock of the token space.
    """
    arrays = nb.carray(pointer(nb.int64(space.ctypes.data)), (1,), SPACE)[0]
    words = arrays.words
    rows = nb.carray(pointer(arrays.rows), (arrays.row_count, words), nb.int32)
    used = nb.carray(pointer(arrays.rows_used), (4,), nb.int64)
    table = nb.carray(pointer(arrays.table), (arrays.slots, 2), nb.int64)
    meta = nb.carray(pointer(arrays.row_meta), (arrays.row_count, 3), nb.int64)
    free = nb.carray(pointer(arrays.free), (arrays.row_count,), nb.int32)
    order, codes, guesses, scratch_rows, tags = ints[ORDER], ints[CODES], ints[GUESSES], ints[SCRATCH_ROWS], longs[TAGS]
    listed = ints[STARTS, groups]
    left = 0
    codes[listed:] = 0
    for i in range(listed):
        g, code = order[i], codes[i]
        codes[i] = 0
        mem = nb.carray(pointer(machines[MACHINE * g]), (machines[MACHINE * g + 1],), nb.int32)
        if code == DUPLICATE:
            out[g] = max(known_row(mem, configs[g]), NEEDS_ROW)
            left += out[g] < 0
            continue
        if code >= 0:
            row = nb.int64(guesses[i])
            if row < 0:
                row = intern_row(rows, used, table, meta, free, tags[i], scratch[scratch_rows[i]][:words])
                if row < 0:
                    code = nb.int32(ROWS_FULL)
            elif not confirm_row(used, meta, row, tags[i], since):
                left += 1
                continue
        if code >= 0:
            done = remember_row(mem, configs[g], code, row)
            if done == 0:
                out[g] = row
                continue
            code = nb.int32(done)
        codes[i] = code
        left += 1
    return left


def addresses(space: TokenSpace) -> Int64:
    """The addresses and sizes of a token space's arrays, which never move, as words of SPACE."""
    rows, used, table, meta, free = space.row_store
    result = np.zeros(1, SPACE)
    for name, array in (
        ("trie_byte", space.trie_byte), ("trie_depth", space.trie_depth), ("trie_end", space.trie_end),
        ("trie_token_start", space.trie_token_start), ("trie_tokens", space.trie_tokens),
        ("trie_below", space.trie_below), ("sets", space.sets), ("set_rows", space.set_rows),
        ("set_ints", space.set_ints), ("eos", space.eos), ("rows", rows),
        ("rows_used", used), ("table", table), ("row_meta", meta), ("free", free),
    ):  # fmt: skip
        result[name] = array.ctypes.data
    result["nodes"], result["main_end"], result["words"] = len(space.trie_byte), space.main_end, space.words
    result["set_count"], result["set_width"] = space.sets.shape
    result["set_row_count"], result["set_ints_size"] = len(space.set_rows), len(space.set_ints)
    result["eos_count"], result["row_count"], result["slots"] = len(space.eos), len(rows), len(table)
    return result.view(np.int64)


class MaskScratch:
    """Arrays for the masks of one chunk, kept for the next (fresh memory from the operating system costs as much as
    computing a mask in it)."""

    __slots__ = ("config", "ints", "job", "job_alone", "longs", "machine", "row", "rows", "space")

    def __init__(self, space: TokenSpace) -> None:
        self.ints = np.zeros((5, CHUNK + 1), np.int32)
        self.longs = np.zeros((2, CHUNK), np.int64)
        self.rows = np.empty((CHUNK + CHUNK // MISSES_PER_THREAD, space.words), np.int32)
        """A row for each guide, and one for each thread, in which it computes a mask before it knows whether the mask
        is new."""
        self.space = addresses(space)
        self.job = new_job()
        """The job used when no helper thread is needed."""
        # For `batch.row_of`: arrays for one guide, and a job that has all addresses.
        self.machine, self.config, self.row = np.zeros(MACHINE, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int32)
        self.job_alone = new_job()
        self.job_alone[AT_FUEL] = FUEL
        alone, chunk = (self.space, self.machine, self.config), (self.ints, self.longs, self.rows)
        find_rows(self.job_alone, NO_HELPERS, *alone, 0, *chunk, NO_TARGETS, self.row, _NOTHING_WRITTEN)


_scratch: WeakKeyDictionary[TokenSpace, list[MaskScratch]] = WeakKeyDictionary()


def take_scratch(space: TokenSpace) -> tuple[list[MaskScratch], MaskScratch]:
    """The list of free `MaskScratch` objects, and one taken from it, which the caller puts back."""
    free = _scratch.setdefault(space, [])
    try:
        return free, free.pop()
    except IndexError:  # (no test before the pop: another thread may take the last one in between)
        return free, MaskScratch(space)
