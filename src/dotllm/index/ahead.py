"""Masks found ahead: a helper takes a step's tokens and finds the next masks while the host launches the next step.

An engine that schedules asynchronously launches a step before it reads the tokens of the last one, and only then finds
the masks. For small models the host takes longer to launch a step (1 to 2 ms) than the device to run it, so the tokens
arrive early, and each new mask (30 us) would lengthen the step. The helper moves no guide. It makes the machines
find, and remember, the configurations after the tokens and the rows of their masks, which the batch then looks up
(`running`). So nothing depends on whether a look-ahead was right, or complete.

During a look-ahead, its caller holds the locks of the machines and must not use them itself.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.automata.machine.arena import HURRIED_FUEL
from dotllm.index.helper_pool import CONTENT, HelperPool, enter_job, exit_job, next_job
from dotllm.index.kernels import L1, MACHINE, I, advance_running, pointer
from dotllm.index.mask_misses import (
    AT_FUEL,
    AT_STOP,
    CHUNK,
    CODES,
    DUPLICATE,
    STARTS,
    MaskScratch,
    by_machine,
    enter_rows,
    find_rows,
)
from dotllm.index.mask_table import CONTENTS
from dotllm.index.token_space import TokenSpace
from dotllm.jit import inner_kernel, kernel

LOOK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "places", "tokens", "machines", "configs", "after", "rows", "token_data", "token_offset", "ends",
            "space", "ints", "longs", "scratch", "search",
            "count", "all_places", "token_bytes", "tokens_known", "words", "space_words", "scratch_rows",
            "search_words", "groups",
        )
    ]
)  # fmt: skip
"""The words of the helper's job from CONTENT on: addresses of arrays, sizes, and the result, ``groups``."""
_COUNT, _GROUPS = (LOOK.fields[name][1] // 8 for name in ("count", "groups"))  # type: ignore[index]


@inner_kernel(nb.void(I))
def _look(address: int) -> None:
    """Do the look-ahead whose words are at ``address``; see `LookAhead.begin`."""
    look = nb.carray(pointer(address), (1,), LOOK)[0]
    places = nb.carray(pointer(look.places), (look.count,), nb.int32)
    tokens = nb.carray(pointer(look.tokens), (look.count,), nb.int64)
    machines = nb.carray(pointer(look.machines), (look.all_places * MACHINE,), nb.int64)
    configs = nb.carray(pointer(look.configs), (look.all_places,), nb.int32)
    after = nb.carray(pointer(look.after), (look.all_places,), nb.int32)
    rows = nb.carray(pointer(look.rows), (look.all_places,), nb.int32)
    token_data = nb.carray(pointer(look.token_data), (look.token_bytes,), nb.uint8)
    token_offset = nb.carray(pointer(look.token_offset), (look.tokens_known + 1,), nb.int32)
    ends = nb.carray(pointer(look.ends), (look.tokens_known,), nb.boolean)
    after[:], trails = configs, np.zeros((look.all_places, 2), np.int32)  # (the guides stay where they are)
    advance_running(
        places, tokens, machines, after, trails, rows, token_data, token_offset, ends, look.words, HURRIED_FUEL,
        np.empty(places.shape[0], np.int32),
    )  # fmt: skip
    ints = nb.carray(pointer(look.ints), (5, CHUNK + 1), nb.int32)
    longs = nb.carray(pointer(look.longs), (2, CHUNK), nb.int64)
    scratch = nb.carray(pointer(look.scratch), (look.scratch_rows, look.words), nb.int32)
    search = nb.carray(pointer(look.search), (look.search_words,), nb.int64)
    space = nb.carray(pointer(look.space), (look.space_words,), nb.int64)
    groups = by_machine(machines, rows, ints)
    if groups == 0:
        return
    ints[CODES] = DUPLICATE  # of those that `AT_STOP` leaves out
    nowhere, nothing = np.empty(0, np.int64), np.zeros(1, np.bool_)
    find_rows(search, nowhere, space, machines, after, groups, ints, longs, scratch, nowhere, rows, nothing)
    look.groups = groups


@kernel(nb.void(L1, I, I))
def look_forever(job: Int64, me: int, pipe: int) -> None:
    """The loop of the helper, which looks ahead whenever there is a job."""
    last = next_job(job, me, pipe, 0)
    while last >= 0:
        if enter_job(job):
            _look(nb.int64(job.ctypes.data) + 8 * CONTENT)
            exit_job(job)
        last = next_job(job, me, pipe, last)


_POOL = HelperPool(look_forever)


class LookAhead:
    """One look at a time, for guides at places of ``machines`` (int64 [places, MACHINE]) with ``configs`` (int32
    [places]), all of ``space``; see the module. Not thread-safe."""

    def __init__(self, space: TokenSpace, machines: Int64, configs: Int32) -> None:
        self.machines = machines
        self._space, self._scratch, self._since = space, MaskScratch(space), 0
        self._places, self._after, self._rows = np.zeros((3, len(configs)), np.int32)
        self._tokens = np.zeros(len(configs), np.int64)
        scratch = self._scratch
        self._arrays = (  # (a reference, too: the helper has only the addresses)
            self._places, self._tokens, machines, configs, self._after, self._rows,
            space.token_data, space.token_offset, space.ends,
            scratch.space, scratch.ints, scratch.longs, scratch.rows, scratch.job,
        )  # fmt: skip
        sizes = (
            0, len(configs), len(space.token_data), space.size, space.words, len(scratch.space), len(scratch.rows),
            len(scratch.job), 0,
        )  # fmt: skip
        self._content = np.array([*(array.ctypes.data for array in self._arrays), *sizes], np.int64)

    def begin(self, places: Int32, tokens: Int64) -> bool:
        """Let the helper find the masks that follow tokens[i] (int64 [n]) at places[i] (int32 [n]; below 0: none).
        Returns whether it will. If so, call `end`, and leave machines and configurations as they are before.

        Hold the locks of the machines until the end.
        """
        asked = places >= 0  # (at most one for each place; a batch may have more requests than there are places)
        count = self._content[_COUNT] = np.count_nonzero(asked)
        self._places[:count], self._tokens[:count] = places[asked], tokens[asked]
        self._rows.fill(0)
        with self._space.lock:
            self._since = self._space.rows_used.item(CONTENTS)
        self._scratch.job[AT_FUEL], self._scratch.job[AT_STOP] = HURRIED_FUEL, 0
        return _POOL.begin(self._content)

    def end(self) -> int:
        """Stop the helper at the next mask, and enter the rows that it has found. Returns how many masks were new (at
        most CHUNK), those that it did not get to included."""
        scratch = self._scratch
        scratch.job[AT_STOP] = 1
        groups: int = _POOL.end().item(CONTENT + _GROUPS)
        if groups:
            results = (scratch.ints, scratch.longs, scratch.rows, self._rows)
            with self._space.lock:
                enter_rows(scratch.space, self.machines.ravel(), self._after, groups, self._since, *results)
        return scratch.ints.item(STARTS, groups) if groups else 0
