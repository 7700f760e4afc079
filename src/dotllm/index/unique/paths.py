"""The machine's steps by bytes, cached, and where marked arrays and objects begin.

Most steps of a look-ahead have been taken before: the inside of a string is one configuration. The cache belongs to an
index and lives as long, as configurations do.
"""

from __future__ import annotations

import weakref
from typing import ClassVar

import numba as nb
import numpy as np

from dotllm.arrays import Int32, UInt8
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.arena import FUEL
from dotllm.automata.machine.closure import close
from dotllm.automata.machine.closure_worklist import begin, touch
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.run import configuration, resolve_stack, run_bytes, token_step
from dotllm.index.kernels import I1, I2, U8, I
from dotllm.index.unique.conflicts import StringConflicts
from dotllm.index.walkable import Walkable
from dotllm.jit import inner_kernel, kernel

OPENINGS = b"[{"
_KEPT = 1 << 16  # configurations: some 30 MB at most, then they are asked for anew

NONE, ALL, SOME = range(3)
"""Which of the texts that are possible begin, with the next bracket, an array without equal items (an object without
equal keys)."""


@kernel(I(nb.int32[::1], U8, I, I1, I))
def expand(mem: Int32, class_bytes: UInt8, config: int, out: Int32, fuel: int) -> int:
    """out[c]: the configuration after a byte of class c; 0: not allowed. Returns 0, or the error of a kernel."""
    for cls in range(out.shape[0]):
        at = mem[L.AT_CONFIG] + 3 * config
        state, stack = I(mem[at]), I(mem[at + 1])
        mem[L.H_FUEL] = fuel
        after = run_bytes(mem, state, stack, class_bytes, cls, cls + 1)
        if after > 0:
            after = configuration(mem, after, mem[L.H_OUT])
        if after < 0:
            return after
        out[cls] = after
    return 0


@inner_kernel(I(MEM, I, I), inlined=True)
def resolved(mem: Int32, raw: int, stack: int) -> int:
    """The configuration of a raw state over a stack, or an error."""
    state = resolve_stack(mem, raw, stack)
    return configuration(mem, state, mem[L.H_OUT]) if state >= 0 else state


@kernel(I(MEM, I, I2))
def only(mem: Int32, config: int, items: Int32) -> int:
    """The configuration with only these of its items, or an error. items int32 [n, 2]: (node, frame set)."""
    begin(mem)
    for i in range(items.shape[0]):
        done = touch(mem, items[i, 0], items[i, 1])
        if done < 0:
            return done
    raw = close(mem)
    return raw if raw < 0 else resolved(mem, raw, I(mem[mem[L.AT_CONFIG] + 3 * config + 1]))


@kernel(I(MEM, I, I2, I))
def by_id(mem: Int32, config: int, token_rows: Int32, token: int) -> int:
    """The configuration after a token where the grammar asks for it by its id; -1: it does not; or an error."""
    at = mem[L.AT_CONFIG] + 3 * config
    raw = token_step(mem, I(mem[at]), token_rows, token)
    if raw <= 0:
        return raw if raw < 0 else I(-1)
    return resolved(mem, raw, I(mem[at + 1]))


ANY_STEPS = 1 << 60


class Paths:
    """See the module. `of` gives the one of an index."""

    _known: ClassVar[weakref.WeakKeyDictionary[Walkable, Paths]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, index: Walkable) -> Paths:
        """The paths of ``index``."""
        found = cls._known.get(index)
        if found is None:
            found = cls._known[index] = cls(index)
        return found

    def __init__(self, index: Walkable) -> None:
        self._index = weakref.ref(index)
        self._rows: dict[int, list[int]] = {}
        self._openings: dict[tuple[int, int], int] = {}
        self._splits: dict[tuple[int, int], tuple[int, int]] = {}
        self._allowed: dict[int, tuple[int, ...]] = {}
        mem = index.mem
        first, classes = int(mem[L.H_CLASS_BYTE]), int(mem[L.H_CLASSES])
        self._class_bytes = mem[first : first + classes].astype(np.uint8)
        self._after: Int32 = np.empty(classes, np.int32)  # what `expand` fills, under the index's lock
        first = int(mem[L.H_CLASS_OF])
        self._class_of = mem[first : first + 256].tolist()
        self.plain = self.plain_classes()
        self.openings = self._marked_brackets()
        self.counts: dict[object, tuple[int, int]] = {}  # of `count_lower_bound`: bound, and where counting stopped
        self.string_conflicts: dict[int, StringConflicts] = {}  # by the id of what holds them; see `masks`
        self.unsafe: dict[object, tuple[int, ...]] = {}  # see `masks`
        self.ways: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # see `plans`
        self.fewest_tokens: dict[int, bytes] = {}  # texts, by configuration; see `plans`
        self.plan_texts: dict[int, tuple[bytes, bool]] = {}  # by configuration; see `plans`
        self.search_steps = ANY_STEPS  # that searches may still take; see `plans`
        self.repeats_nothing: bool | None = None  # see `plans`
        self.needs_several = False  # the shortest way through an array has several items; see `plans`

    @property
    def index(self) -> Walkable:
        """Whose paths these are."""
        index = self._index()
        assert index is not None  # whoever asks has a guide, which holds it
        return index

    def step(self, config: int, byte: int) -> int:
        """The configuration after one byte; -1: not allowed."""
        row = self._rows.get(config)
        return (self._expand(config) if row is None else row)[self._class_of[byte]]

    def _expand(self, config: int) -> list[int]:
        """The configurations after one byte, by the byte's class."""
        if len(self._rows) >= _KEPT:
            self._rows.clear()
        index = self.index
        with index.lock:
            index.run(lambda mem: int(expand(mem, self._class_bytes, config, self._after, FUEL)))
            row = [after or -1 for after in self._after.tolist()]
        self._rows[config] = row
        return row

    def _marked_brackets(self) -> bytes:
        """Those of OPENINGS that begin something marked somewhere."""
        return bytes(b for b in OPENINGS if any(self._takes(node, b) for node in self.index.unique_nodes))

    def _takes(self, node: int, byte: int) -> bool:
        """Whether ``byte`` may be read at a node of the automaton."""
        mem = self.index.mem
        edges = mem[mem[L.H_EDGE_START] + node : mem[L.H_EDGE_START] + node + 2].tolist()
        packed = mem[mem[L.H_EDGE_BYTES] + edges[0] : mem[L.H_EDGE_BYTES] + edges[1]].tolist()
        return any(p & 255 <= byte <= p >> 8 for p in packed)

    def plain_classes(self) -> list[tuple[int, int]]:
        """(a byte, how many are like it) of the characters that need no escape in a JSON string."""
        counts: dict[int, list[int]] = {}
        for byte in range(0x20, 0x7F):
            if byte not in b'"\\':
                counts.setdefault(self._class_of[byte], []).append(byte)
        return [(alike[0], len(alike)) for alike in counts.values()]

    def allowed(self, config: int) -> tuple[int, ...]:
        """The bytes that may come next."""
        found = self._allowed.get(config)
        if found is None:
            if len(self._allowed) >= _KEPT:
                self._allowed.clear()
            found = tuple(byte for byte in range(256) if self.step(config, byte) >= 0)
            self._allowed[config] = found
        return found

    def opening(self, config: int, bracket: int) -> int:
        """NONE, ALL or SOME, for the bracket (one of OPENINGS) that may come next."""
        found = self._openings.get((config, bracket))
        if found is None:
            marked, others = self._items(config, bracket)
            found = self._openings[config, bracket] = NONE if not marked else ALL if not others else SOME
        return found

    def split(self, config: int, bracket: int) -> tuple[int, int]:
        """Where SOME: the configurations after the bracket, as one that is marked and as others."""
        found = self._splits.get((config, bracket))
        if found is None:
            marked, others = self._items(config, bracket)
            found = self._splits[config, bracket] = (
                self.step(self._only(config, marked), bracket),
                self.step(self._only(config, others), bracket),
            )
        return found

    def by_id(self, config: int, token: int) -> int:
        """The configuration after ``token`` where the grammar asks for it by its id; -1: it does not."""
        index = self.index
        if config == L.FINISHED:
            return -1
        with index.lock:
            return index.run(lambda mem: int(by_id(mem, config, index.token_rows, token)))

    def _items(self, config: int, bracket: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The items (node, frame set) that take a bracket: those that are marked, others."""
        index = self.index
        marked: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        with index.lock:
            mem = index.mem
            state = int(mem[mem[L.AT_CONFIG] + 3 * config])
            entry = mem[L.AT_STATE] + L.S_WIDTH * state
            first = int(mem[L.AT_POOL] + mem[entry + L.S_OFFSET])
            flat = mem[first : first + int(mem[entry + L.S_LENGTH])].tolist()
            for node, frames in zip(flat[::2], flat[1::2], strict=True):
                if self._takes(node, bracket):
                    (marked if node in index.unique_nodes else others).append((node, frames))
        return marked, others

    def _only(self, config: int, items: list[tuple[int, int]]) -> int:
        """The configuration with only these of its items."""
        index, pairs = self.index, np.array(items, np.int32)
        with index.lock:
            return index.run(lambda mem: int(only(mem, config, pairs)))
