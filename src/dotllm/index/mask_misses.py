"""Kernels: the missing masks of a batch, computed by the caller together with helpers (see `helper_pool`).

Three steps. `by_machine` lists what is missing. `find_rows` computes it, on as many threads as there are; each thread
takes one machine's guides at a time, since an arena belongs to one thread at a time. It also spins there whether the
table of rows has such a row, without the table's lock, so that is a guess. `enter_rows` is for one thread, with that
lock, and has little left to do: confirm the guesses, enter the rows that are new, tell the machines.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine.layout import CONFIG, H_FUEL, R
from dotllm.automata.machine.masks import find_row, known_row, remember_row
from dotllm.index.atomics import exchange, fetch_add
from dotllm.index.helper_pool import CONTENT, close_job, enter_job, exit_job, open_job, wait_for_job
from dotllm.index.kernels import B1, I1, I2, L1, MACHINE, NEEDS_ROW, I, _pointer, copy_row
from dotllm.index.token_space import ROWS_FULL, TokenSpace, confirm_row, intern_row, likely_row, row_hash
from dotllm.jit import kernel

L2 = nb.int64[:, ::1]

DUPLICATE = -1  # not an error: see `find_rows`
_COPIES = 8  # known rows that a thread takes at a time
_FAULTS = 1000  # of a pipe, one after another, until its helper goes

# slots of a job, from CONTENT
J_MACHINES, J_CONFIGS, J_GUIDES = 0, 1, 2
J_ORDER, J_STARTS, J_GROUPS, J_LISTED, J_THREADS, J_FUEL = 3, 4, 5, 6, 7, 8
J_TAKEN, J_CODES, J_TAGS, J_GUESSES, J_PLACES = 9, 10, 11, 12, 13
J_ROOM, J_ROOM_ROWS, J_ROOM_WORDS, J_TARGETS, J_WRITTEN = 14, 15, 16, 17, 18
J_KNOWN, J_DONE = 19, 20
J_ROOM_USED, J_COPIED = 32, 40  # counters, on cache lines of their own; copied: one of each thread's stretch
J_SPACE = 48  # the X_… of its arrays
(
    X_BYTE, X_DEPTH, X_END, X_TOKEN_START, X_TOKENS, X_NODES, X_TRIE_TOKENS, X_MAIN_END, X_SETS, X_SETS_ROWS,
    X_SETS_WIDTH, X_SET_ROWS, X_SET_ROWS_ROWS, X_SET_INTS, X_SET_INTS_SIZE, X_EOS, X_EOS_SIZE, X_ROWS, X_ROWS_ROWS,
    X_WORDS, X_TABLE, X_TABLE_SIZE,
) = range(22)  # fmt: skip


@kernel(nb.int64(L1, I1, I1, I1))
def by_machine(machines: Int64, rows: Int32, order: Int32, starts: Int32) -> int:
    """List guides whose rows are NEEDS_ROW in ``order`` (as many as it has room for), those of one machine together:
    group g is order[starts[g]:starts[g + 1]]. Returns the number of groups."""
    groups, n = 0, 0
    for i in range(rows.shape[0]):
        if n == order.shape[0]:
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
            if n < order.shape[0] and rows[j] == NEEDS_ROW and machines[MACHINE * j] == machines[MACHINE * i]:
                order[n] = j
                n += 1
    starts[groups] = n
    return groups


@kernel(nb.void(L1, I))
def _share(job: Int64, me: int) -> None:
    """What thread ``me`` does of what `find_rows` wrote into the job.

    It begins with a stretch of its own, in step after step the same one, so that it meets the arenas and the rows of
    the bitmask in its core's cache; then it helps others from the far end of theirs.
    """
    task = job[CONTENT:]
    groups, threads, fuel = task[J_GROUPS], task[J_THREADS], task[J_FUEL]
    guides, listed = task[J_GUIDES], task[J_LISTED]
    machines = nb.carray(_pointer(task[J_MACHINES]), (guides * MACHINE,), nb.int64)
    configs = nb.carray(_pointer(task[J_CONFIGS]), (guides,), nb.int32)
    order = nb.carray(_pointer(task[J_ORDER]), (listed,), nb.int32)
    starts = nb.carray(_pointer(task[J_STARTS]), (groups + 1,), nb.int32)
    codes = nb.carray(_pointer(task[J_CODES]), (listed,), nb.int32)
    tags = nb.carray(_pointer(task[J_TAGS]), (listed,), nb.int64)
    guesses = nb.carray(_pointer(task[J_GUESSES]), (listed,), nb.int32)
    places = nb.carray(_pointer(task[J_PLACES]), (listed,), nb.int32)
    room = nb.carray(_pointer(task[J_ROOM]), (task[J_ROOM_ROWS], task[J_ROOM_WORDS]), nb.int32)
    targets = nb.carray(_pointer(task[J_TARGETS]), (guides,), nb.int64)
    written = nb.carray(_pointer(task[J_WRITTEN]), (guides,), nb.boolean)
    direct = task[J_TARGETS] != 0

    space = task[J_SPACE:]
    words, nodes = space[X_WORDS], space[X_NODES]
    t_byte = nb.carray(_pointer(space[X_BYTE]), (nodes,), nb.uint8)
    t_depth = nb.carray(_pointer(space[X_DEPTH]), (nodes,), nb.int32)
    t_end = nb.carray(_pointer(space[X_END]), (nodes,), nb.int32)
    t_token_start = nb.carray(_pointer(space[X_TOKEN_START]), (nodes + 1,), nb.int32)
    t_tokens = nb.carray(_pointer(space[X_TOKENS]), (space[X_TRIE_TOKENS],), nb.int32)
    sets = nb.carray(_pointer(space[X_SETS]), (space[X_SETS_ROWS], space[X_SETS_WIDTH]), nb.int32)
    set_rows = nb.carray(_pointer(space[X_SET_ROWS]), (space[X_SET_ROWS_ROWS], words), nb.int32)
    set_ints = nb.carray(_pointer(space[X_SET_INTS]), (space[X_SET_INTS_SIZE],), nb.int32)
    eos = nb.carray(_pointer(space[X_EOS]), (space[X_EOS_SIZE],), nb.int32)
    rows = nb.carray(_pointer(space[X_ROWS]), (space[X_ROWS_ROWS], words), nb.int32)
    table = nb.carray(_pointer(space[X_TABLE]), (space[X_TABLE_SIZE], 2), nb.int64)

    counters = nb.int64(task.ctypes.data)
    first = me * groups // threads
    own = (me + 1) * groups // threads - first
    place = nb.int64(-1)
    done = 0
    for k in range(groups):
        group = first + k if k < own else (first + own - 1 - k) % groups
        if exchange(task[J_TAKEN] + 8 * group, 1) != 0:
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
                place = targets[g]
            elif place < 0:
                place = fetch_add(counters + 8 * J_ROOM_USED, 1)
            at = MACHINE * g
            mem = nb.carray(_pointer(machines[at]), (machines[at + 1],), nb.int32)
            token_rows = nb.carray(_pointer(machines[at + 2]), (machines[at + 3], words), nb.int32)
            mem[H_FUEL] = fuel
            config = mem[R + 3 * CONFIG] + 3 * configs[g]
            row = room[place][:words]
            codes[i] = find_row(
                mem, t_byte, t_depth, t_end, t_token_start, t_tokens, space[X_MAIN_END], sets, set_rows, set_ints,
                token_rows, eos, mem[config], mem[config + 1], row,
            )  # fmt: skip
            if codes[i] < 0:
                continue
            tags[i] = row_hash(row)
            guesses[i] = likely_row(rows, table, tags[i], row)
            places[i] = place
            if direct:
                room[place][words:] = 0
                written[g] = True
            elif guesses[i] < 0:
                place = nb.int64(-1)
        done += 1
    if direct:
        known = nb.carray(_pointer(task[J_KNOWN]), (guides,), nb.int32)
        for k in range(threads):
            whose = (me + k) % threads
            first, end = whose * guides // threads, (whose + 1) * guides // threads
            begin = first + fetch_add(counters + 8 * (J_COPIED + whose), _COPIES)
            while begin < end:
                for g in range(begin, min(begin + _COPIES, end)):
                    if known[g] >= 0 and not written[g]:
                        copy_row(rows[known[g]], room[targets[g]])
                        written[g] = True
                begin = first + fetch_add(counters + 8 * (J_COPIED + whose), _COPIES)
    fetch_add(counters + 8 * J_DONE, done)


@kernel(nb.boolean(L1, L1, L1, L1, I1, I, I, I, I1, I1, L1, I1, L1, I1, I1, I2, L1, I1, B1))
def find_rows(
    job: Int64, wake_fds: Int64, space: Int64, machines: Int64, configs: Int32, groups: int, threads: int, fuel: int,
    order: Int32, starts: Int32, taken: Int64, codes: Int32, tags: Int64, guesses: Int32, places: Int32, room: Int32,
    targets: Int64, known: Int32, written: Bool,
) -> bool:  # fmt: skip
    """Compute the missing masks listed by `by_machine`, together with the helpers that ``wake_fds`` wake. Returns
    whether that went well (a helper may find no memory).

    Of guide order[i], codes[i]: how many symbols its mask depends on, DUPLICATE if it is that of another guide of its
    group, or an error; tags[i]: the mask's hash; guesses[i]: its number (see `likely_row`), or -1: it is room[places[i]].
    With ``targets`` (none: empty) masks are written to room[targets[g]], and ``written[g]`` is set; and so are those
    of which the row is ``known[g]``. taken [groups]: zeros; space: `addresses`.
    """
    task = job[CONTENT:]
    task[J_MACHINES], task[J_CONFIGS], task[J_GUIDES] = machines.ctypes.data, configs.ctypes.data, configs.shape[0]
    task[J_ORDER], task[J_STARTS], task[J_LISTED] = order.ctypes.data, starts.ctypes.data, order.shape[0]
    task[J_GROUPS], task[J_THREADS], task[J_FUEL] = groups, threads, fuel
    task[J_TAKEN], task[J_CODES], task[J_TAGS] = taken.ctypes.data, codes.ctypes.data, tags.ctypes.data
    task[J_GUESSES], task[J_PLACES], task[J_WRITTEN] = guesses.ctypes.data, places.ctypes.data, written.ctypes.data
    task[J_ROOM], task[J_ROOM_ROWS], task[J_ROOM_WORDS] = room.ctypes.data, room.shape[0], room.shape[1]
    task[J_TARGETS] = nb.int64(targets.ctypes.data) if targets.shape[0] > 0 else nb.int64(0)
    task[J_KNOWN] = known.ctypes.data
    task[J_DONE] = task[J_ROOM_USED] = 0
    task[J_COPIED : J_COPIED + threads] = 0
    task[J_SPACE : J_SPACE + space.shape[0]] = space
    if wake_fds.shape[0] == 0:
        _share(job, 0)
        return True
    open_job(job, wake_fds)
    _share(job, 0)
    close_job(job)
    return task[J_DONE] == groups


@kernel(nb.void(L1, I, I))
def help_forever(job: Int64, me: int, pipe: int) -> None:
    """What helper ``me`` does whenever there is a job."""
    faults = 0
    last = nb.int64(0)
    while faults < _FAULTS:
        number = wait_for_job(job, me, pipe, last)
        if number < 0:
            faults += 1
            continue
        faults = 0
        last = number
        if enter_job(job):
            if me < job[CONTENT + J_THREADS]:  # (a byte of an earlier time may have let in one too many)
                _share(job, me)
            exit_job(job)


@kernel(I(L1, I1, I, I2, L1, L2, L2, I1, I, I1, I1, L1, I1, L1, I1, I1, I2, I1))
def enter_rows(
    machines: Int64, configs: Int32, groups: int, rows: Int32, used: Int64, table: Int64, about: Int64, free: Int32,
    since: int, order: Int32, starts: Int32, taken: Int64, codes: Int32, tags: Int64, guesses: Int32, places: Int32,
    room: Int32, out: Int32,
) -> int:  # fmt: skip
    """Intern what `find_rows` found and remember it in the machines: out[order[i]] is the row, or still NEEDS_ROW: find
    it again, after what codes[i] asks for if it is below 0. Returns how many still need their rows.

    since: `CONTENTS` when `find_rows` was called. Hold the lock of the token space.
    """
    left = 0
    words = rows.shape[1]
    codes[starts[groups] :] = 0
    for i in range(starts[groups]):
        g, code = order[i], codes[i]
        codes[i] = 0
        mem = nb.carray(_pointer(machines[MACHINE * g]), (machines[MACHINE * g + 1],), nb.int32)
        if code == DUPLICATE:
            out[g] = max(known_row(mem, configs[g]), NEEDS_ROW)
            left += out[g] < 0
            continue
        if code >= 0:
            row = nb.int64(guesses[i])
            if row < 0:
                row = intern_row(rows, used, table, about, free, tags[i], room[places[i]][:words])
                if row < 0:
                    code = nb.int32(ROWS_FULL)
            elif not confirm_row(used, about, row, tags[i], since):
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
    """The X_… of a token space, whose arrays stay where they are."""
    if space.addresses is None:
        found = np.zeros(X_TABLE_SIZE + 1, np.int64)
        for at, array in (
            (X_BYTE, space.trie_byte), (X_DEPTH, space.trie_depth), (X_END, space.trie_end),
            (X_TOKEN_START, space.trie_token_start), (X_TOKENS, space.trie_tokens), (X_SETS, space.sets),
            (X_SET_ROWS, space.set_rows), (X_SET_INTS, space.set_ints), (X_EOS, space.eos), (X_ROWS, space.rows),
            (X_TABLE, space.row_store[2]),
        ):  # fmt: skip
            found[at] = array.ctypes.data
        found[X_NODES], found[X_TRIE_TOKENS] = len(space.trie_byte), len(space.trie_tokens)
        found[X_MAIN_END], found[X_WORDS] = space.main_end, space.words
        found[X_SETS_ROWS], found[X_SETS_WIDTH] = space.sets.shape
        found[X_SET_ROWS_ROWS], found[X_SET_INTS_SIZE] = len(space.set_rows), len(space.set_ints)
        found[X_EOS_SIZE], found[X_ROWS_ROWS] = len(space.eos), len(space.rows)
        found[X_TABLE_SIZE] = len(space.row_store[2])
        space.addresses = found
    return space.addresses
