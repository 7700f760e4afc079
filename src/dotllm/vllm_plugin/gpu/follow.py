"""Engine core: taking a step's tokens where the tables that the GPU walks lead, without asking the machines.

A `ByteTable` holds the machine's own transitions, so following one is following the machine: the same configurations,
at a load per byte instead of closures and look-ups. About what the table (as the GPU had it) cannot say, `Batch.follow`
asks the machine. At 256 requests that would be the larger part of what a step costs here
(`python -m benchmarks.gpu_walk_steps`).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32, Int64, UInt8
from dotllm.index import gpu_tables
from dotllm.index.gpu_tables import Batch
from dotllm.index.kernels import B1, I1, L1, U8, I, _pointer
from dotllm.index.token_space import TokenSpace
from dotllm.jit import kernel

# Written out here, since the cache of machine code knows the sources of this folder only.
ROW, FLAGS, NEXT, EXPANDED, TAKES_TOKENS, UNKNOWN_ROW = 0, 1, 2, 1, 4, -2
LINKS, CLASS_TABLE, P_LENGTH, P_CONFIG, P_MASK = 9, 256, 1, 4, 5
for _name in (
    "ROW", "FLAGS", "NEXT", "EXPANDED", "TAKES_TOKENS", "UNKNOWN_ROW", "LINKS", "CLASS_TABLE", "P_LENGTH", "P_CONFIG",
    "P_MASK",
):  # fmt: skip
    if globals()[_name] != getattr(gpu_tables, _name):
        raise ImportError(f"{_name} is another one in dotllm.index.gpu_tables")


@kernel(I(L1, I1, I1, I, U8, I1, B1, I1, I1))
def follow_tables(
    context: Int64,
    slots: Int32,
    tokens: Int32,
    now: int,
    token_data: UInt8,
    token_offset: Int32,
    ends: Bool,
    left: Int32,
    flags: Int32,
) -> int:
    """As `gpu_tables.follow`, by the tables alone: lists in ``left`` the positions about which they say nothing, and
    returns how many these are. End tokens, and configurations that take tokens by their id, are among them.

    flags: by position, those of the place that was come to, as the table has them; 0 for those in ``left``.
    """
    count = context[4]
    links = nb.carray(_pointer(context[0]), (count, LINKS), nb.int64)
    configs = nb.carray(_pointer(context[1]), (count,), nb.int32)
    places = nb.carray(_pointer(context[2]), (count, context[3]), nb.int32)
    behind = 0
    for i in range(slots.shape[0]):
        s = slots[i]
        link = links[s]
        token = tokens[i]
        config = I(configs[s])
        known = False
        row = 0
        flags[i] = 0
        if link[7] > 0 and 0 <= token < ends.shape[0] and not ends[token] and 0 < config < link[7]:
            table = nb.carray(_pointer(link[4]), (link[7], link[8]), nb.int32)
            since = nb.carray(_pointer(link[5]), (link[7],), nb.int32)
            class_of = nb.carray(_pointer(link[6]), (CLASS_TABLE,), nb.int32)
            start, end = token_offset[token], token_offset[token + 1]
            known = start < end and table[config, FLAGS] & TAKES_TOKENS == 0
            for at in range(start, end):
                if not known:
                    break
                known = since[config] <= now and table[config, FLAGS] & EXPANDED != 0
                config = I(table[config, NEXT + class_of[token_data[at]]])
                known = known and 0 < config < table.shape[0]
            if known:
                row = table[config, ROW]
                known = since[config] <= now and row != UNKNOWN_ROW
                if known:
                    flags[i] = table[config, FLAGS]
        if known:
            configs[s] = config
            places[s, P_LENGTH] += 1
            places[s, P_CONFIG] = config
            places[s, P_MASK] = row
        else:
            left[behind] = i
            behind += 1
    return behind


class TableBatch(Batch):
    """A `Batch` that asks the tables first.

    They are read without the indexes' locks, while `prefetch` may be at work: what the links point at stays where it is
    as long as a slot is linked to it (see `Walk`), rows only ever change from unknown to known, and one is believed
    only from the step on with which it was sent.
    """

    def _point(self) -> None:
        super()._point()
        self._flags = np.empty(len(self.configs), np.int32)

    def follow_tables(
        self, space: TokenSpace, slots: list[int], tokens: list[int], now: int
    ) -> tuple[list[int], Int32]:
        """(positions left behind, flags by position); see `follow_tables`."""
        left, flags = self._slow, self._flags[: len(slots)]
        behind = follow_tables(
            self._context, np.array(slots, np.int32), np.array(tokens, np.int32), now, space.token_data,
            space.token_offset, space.ends, left, flags,
        )  # fmt: skip
        return left[:behind].tolist(), flags
