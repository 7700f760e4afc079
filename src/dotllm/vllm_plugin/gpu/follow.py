"""Engine core: taking a step's tokens where the tables that the GPU walks lead, without asking the machines.

A `ByteTable` holds the machine's own transitions, so following one is following the machine: the same configurations,
at a load per byte instead of closures and look-ups. About what the table (as the GPU had it) cannot say, `Batch.follow`
asks the machine. At 256 requests that would be the larger part of what a step costs here
(`python -m benchmarks.gpu_walk_steps`).
"""

from __future__ import annotations

from array import array

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.index import gpu_tables
from dotllm.index.gpu_tables import Batch
from dotllm.index.index import FINISHED
from dotllm.index.kernels import I, _pointer
from dotllm.index.token_space import TokenSpace
from dotllm.jit import kernel
from dotllm.vllm_plugin.gpu import entry

# Written out here, since the cache of machine code knows the sources of this folder only.
ROW, FLAGS, NEXT, EXPANDED, CAN_FINISH, TAKES_TOKENS, UNKNOWN_ROW, NO_ROW = 0, 1, 2, 1, 2, 4, -2, -1
LINKS, CLASS_TABLE, P_LENGTH, P_CONFIG, P_MASK = 9, 256, 1, 4, 5
LOOKED_AT = 8
ADDRESSES = 16  # of a `TableBatch`, with some sizes among them
WORK = 4  # ints a slot that `follow_tables` works with
GONE, ENDED = -1, -2  # in place of a configuration: the request has ended before; ends with this token
for _module, _names in (
    (gpu_tables, (
        "ROW", "FLAGS", "NEXT", "EXPANDED", "CAN_FINISH", "TAKES_TOKENS", "UNKNOWN_ROW", "NO_ROW", "LINKS",
        "CLASS_TABLE", "P_LENGTH", "P_CONFIG", "P_MASK",
    )),
    (entry, ("LOOKED_AT",)),
):  # fmt: skip
    for _name in _names:
        if globals()[_name] != getattr(_module, _name):
            raise ImportError(f"{_name} is another one in {_module.__name__}")
if FINISHED != 0:
    raise ImportError("FINISHED is another one in dotllm.index.index")


@kernel(I(I, I, I, I))
def follow_tables(context: int, tokens: int, number: int, now: int) -> int:
    """As `gpu_tables.follow`, by the tables alone: lists the positions about which they say nothing in ``left``, and
    returns how many these are. Configurations that take tokens by their id are among them, and ends where no text may
    end. Nothing is done about requests that have ended since (their slots' ``leases`` are others than they ``had``).

    context: address of `TableBatch.addresses`; tokens: of int32 [number]. (Passing arrays would take longer than
    following a token or two does.) ``flags`` gets, by position, those of the place that was come to, as the table has
    them; 0 for those in ``left``, and LOOKED_AT for those who are at no place any more.

    Between two steps the loop runs through megabytes of Python's objects, so next to nothing of what is read here lies
    in a near cache, and each byte of a token leads to a row that nobody can name before. So it is not one request after
    the other that goes through its bytes, but all of them through their first byte, then through their second: the
    loads of a round do not wait for one another, and the processor has many of them under way.
    """
    at = nb.carray(_pointer(context), (ADDRESSES,), nb.int64)
    count = at[4]
    links = nb.carray(_pointer(at[0]), (count, LINKS), nb.int64)
    configs = nb.carray(_pointer(at[1]), (count,), nb.int32)
    places = nb.carray(_pointer(at[2]), (count, at[3]), nb.int32)
    slots = nb.carray(_pointer(at[5]), (count,), nb.int32)
    left = nb.carray(_pointer(at[6]), (count,), nb.int32)
    flags = nb.carray(_pointer(at[7]), (count,), nb.int32)
    vocabulary = at[8]
    token_data = nb.carray(_pointer(at[9]), (at[10],), nb.uint8)
    token_offset = nb.carray(_pointer(at[11]), (vocabulary + 1,), nb.int32)
    ends = nb.carray(_pointer(at[12]), (vocabulary,), nb.uint8)
    # by position: where a request has come to (0: nobody knows), its next byte, its last one; and who has bytes left
    work = nb.carray(_pointer(at[13]), (WORK, count), nb.int32)
    leases = nb.carray(_pointer(at[14]), (count,), nb.int32)
    had = nb.carray(_pointer(at[15]), (count,), nb.int32)
    come_to, byte, last, active = work[0], work[1], work[2], work[3]
    sampled = nb.carray(_pointer(tokens), (number,), nb.int32)

    walking = 0
    for i in range(number):
        token, s = sampled[i], slots[i]
        link, config = links[s], configs[s]
        come_to[i] = 0
        if leases[s] != had[i]:
            come_to[i] = GONE
        elif 0 <= token < vocabulary and 0 < config < link[7]:
            if ends[token] == 0:
                byte[i], last[i] = token_offset[token], token_offset[token + 1] - 1
                come_to[i] = config
                active[walking] = i
                walking += 1
            else:
                table = nb.carray(_pointer(link[4]), (link[7], link[8]), nb.int32)
                since = nb.carray(_pointer(link[5]), (link[7],), nb.int32)
                known = since[config] <= now and table[config, FLAGS] & EXPANDED
                if known and table[config, FLAGS] & CAN_FINISH:
                    come_to[i] = ENDED
    takes_tokens = TAKES_TOKENS  # in the first round only: a token that is taken by its id has no bytes
    while walking:
        going_on = 0
        for j in range(walking):
            i = active[j]
            link, config = links[slots[i]], come_to[i]
            table = nb.carray(_pointer(link[4]), (link[7], link[8]), nb.int32)
            since = nb.carray(_pointer(link[5]), (link[7],), nb.int32)
            class_of = nb.carray(_pointer(link[6]), (CLASS_TABLE,), nb.int32)
            come_to[i] = 0
            if byte[i] > last[i] or since[config] > now or table[config, FLAGS] & (EXPANDED | takes_tokens) != EXPANDED:
                continue
            config = table[config, NEXT + class_of[token_data[byte[i]]]]
            if 0 < config < table.shape[0]:
                come_to[i] = config
                if byte[i] < last[i]:
                    byte[i] += 1
                    active[going_on] = i
                    going_on += 1
        walking, takes_tokens = going_on, 0

    behind = 0
    for i in range(number):
        s, config = slots[i], come_to[i]
        flags[i] = 0
        if config > 0:
            link = links[s]
            table = nb.carray(_pointer(link[4]), (link[7], link[8]), nb.int32)
            since = nb.carray(_pointer(link[5]), (link[7],), nb.int32)
            row = table[config, ROW]
            if since[config] <= now and row != UNKNOWN_ROW:
                flags[i] = table[config, FLAGS]
                configs[s] = config
                places[s, P_LENGTH] += 1
                places[s, P_CONFIG] = config
                places[s, P_MASK] = row
                continue
        elif config < 0:
            flags[i] = LOOKED_AT
            if config == ENDED:
                configs[s] = 0
                places[s, P_LENGTH] += 1
                places[s, P_CONFIG] = 0
                places[s, P_MASK] = NO_ROW
            continue
        left[behind] = i
        behind += 1
    return behind


@kernel(I(I, I, I, I, I))
def unsent_masks(context: int, sent: int, versions: int, rows: int, step: int) -> int:
    """Lists in ``left`` the masks of all places that the device has not got; returns how many these are.

    context: address of `TableBatch.addresses`; sent, versions: of int64 [rows] and [rows * step], of whose elements
    every ``step``-th counts: the version of each row that the device has, and that which there is.
    """
    at = nb.carray(_pointer(context), (ADDRESSES,), nb.int64)
    places = nb.carray(_pointer(at[2]), (at[4], at[3]), nb.int32)
    has = nb.carray(_pointer(sent), (rows,), nb.int64)
    there_is = nb.carray(_pointer(versions), (rows * step,), nb.int64)
    found = nb.carray(_pointer(at[6]), (at[4],), nb.int32)
    count = 0
    for s in range(places.shape[0]):
        row = places[s, P_MASK]
        if 0 <= row < rows and has[row] != there_is[row * step]:
            found[count] = row
            count += 1
    return count


class TableBatch(Batch):
    """A `Batch` that asks the tables first.

    They are read without the indexes' locks, while `prefetch` may be at work: what the links point at stays where it is
    as long as a slot is linked to it (see `Walk`), rows only ever change from unknown to known, and one is believed
    only from the step on with which it was sent.
    """

    def __init__(self, space: TokenSpace, slots: int, columns: int) -> None:
        self._space = space
        self.leases: Int32 = np.zeros(slots, np.int32)
        """int32 [slots], how often each has been given back: who holds one knows by this whether it is still his"""
        super().__init__(slots, columns)

    def grow(self, slots: int) -> None:
        """See `Batch.grow`."""
        self.leases = np.concatenate((self.leases, np.zeros(slots - len(self.leases), np.int32)))
        super().grow(slots)

    def _point(self) -> None:
        super()._point()
        space, slots = self._space, len(self.configs)
        self._slots, self._had, self._left, self._flags = (np.empty(slots, np.int32) for _ in range(4))
        self._filled = self._slots[:0]
        """the array that ``_slots`` is a copy of"""
        self._work = np.empty((WORK, slots), np.int32)
        arrays = (self._slots, self._left, self._flags)
        self.addresses: Int64 = np.array(
            (
                *self._context, *(a.ctypes.data for a in arrays), len(space.ends), space.token_data.ctypes.data,
                len(space.token_data), space.token_offset.ctypes.data, space.ends.ctypes.data, self._work.ctypes.data,
                self.leases.ctypes.data, self._had.ctypes.data,
            ),
            np.int64,
        )  # fmt: skip
        assert len(self.addresses) == ADDRESSES and space.ends.itemsize == 1
        self._at = self.addresses.ctypes.data

    def unsent_masks(self, sent: int, versions: int, rows: int, step: int) -> list[int]:
        """The masks of all places that the device has not got, some perhaps more than once; see `unsent_masks`."""
        count = unsent_masks(self._at, sent, versions, rows, step)
        return self._left[:count].tolist() if count else []

    def follow_tables(self, slots: Int32, leases: Int32, tokens: array[int], now: int) -> tuple[list[int], Int32]:
        """(positions left behind, flags by position); see `follow_tables`. slots, tokens: int32 [n]; leases: int32 [n],
        those under which the requests had these slots.

        Nobody may change ``slots`` and ``leases`` afterwards: arrays that come again are not looked at again.
        """
        if len(slots) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens for {len(slots)} slots")
        if slots is not self._filled:
            self._slots[: len(slots)] = slots
            self._had[: len(slots)] = leases
            self._filled = slots
        behind = follow_tables(self._at, tokens.buffer_info()[0], len(slots), now)
        return self._left[:behind].tolist() if behind else [], self._flags[: len(slots)]
