"""The shortest way out: fewest bytes that bring a sequence to a place where the text may end.

Exact, and without a search. For every node of the automaton: the fewest bytes to the end of its own level (its rule's
return, its loop's end), a least fixpoint. Add what the frames on the stack still ask for after that (the rest of the
callers, the rounds a bounded loop still owes), and each step is an edge that brings the sum down by its byte.
Reads the machine's arena (`automata.machine.layout`); nothing of the machine is changed.

In an unordered sequence (`Grammar.unordered`) the required parts that have not come are still owed, each with a
separator, so the nodes of a separator are worth less by that one, and half a byte more, so that none is begun where
nothing is owed. If the text stands inside a separator there, the sum lacks a part. In a counted network
(`Grammar.network` with rounds) it lacks what the network's states still ask for. Either way out may be longer than the
sum says.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from dotllm import Index
from dotllm.automata.kinds import NodeKind
from dotllm.automata.machine import layout

INFINITE = 1 << 40
LONGEST_PART = 4096  # by so much the sum may be wrong where the text stands inside a separator or a counted network


class NoWayOut(Exception):
    """Nothing leads to an end by bytes: a dead end (or only tokens by id would)."""


class WayOut:
    """Distances of one index."""

    def __init__(self, index: Index) -> None:
        self.index = index
        mem = index.mem
        nodes = int(mem[layout.H_NODES])

        def array(slot: int, length: int) -> list[int]:
            start = int(mem[slot])
            return [int(x) for x in mem[start : start + length]]

        self.kind, self.a, self.b = (array(slot, nodes) for slot in (layout.H_KIND, layout.H_A, layout.H_B))
        starts = array(layout.H_EDGE_START, nodes + 1)
        low = [packed & 255 for packed in array(layout.H_EDGE_BYTES, starts[-1])]
        targets = array(layout.H_EDGE_TARGET, starts[-1])
        self.edges = [list(zip(low[i:j], targets[i:j], strict=True)) for i, j in itertools.pairwise(starts)]
        closure_start = array(layout.H_CLOSURE_START, nodes + 1)
        closure = array(layout.H_CLOSURE, closure_start[-1])
        self.closure = [closure[i:j] for i, j in itertools.pairwise(closure_start)]
        loops = 1 + max((self.a[n] for n in range(nodes) if self.kind[n] in (NodeKind.ENTER, NodeKind.END)), default=-1)
        self.body, self.after, self.least, most = (
            array(slot, loops)
            for slot in (layout.H_LOOP_BODY, layout.H_LOOP_AFTER, layout.H_LOOP_MIN, layout.H_LOOP_MAX)
        )
        # of each unordered sequence the first nodes of its parts
        self.parts = {
            self.a[n]: range(self.b[n], self.b[n] - 2 - most[self.a[n]])
            for n in range(nodes)
            if self.kind[n] == NodeKind.ENTER and most[self.a[n]] < -1
        }
        self._slack = LONGEST_PART if self.parts or min(self.least, default=0) < 0 else 0
        self.node: list[float] = [INFINITE] * nodes
        self._separators: dict[int, float] = {}
        self._solve()
        if self.parts:
            self._separators = {loop: self._target(self.body[loop], pushed=True) for loop in self.parts}
            self._solve()
        self._frames: dict[tuple[int, int], float] = {}

    def _target(self, target: int, *, pushed: bool = False) -> float:
        """Fewest bytes from a target to the end of its level. ``pushed``: its level has just begun and is not empty."""
        ends = (NodeKind.RETURN, NodeKind.END)
        return min(
            (self.node[n] for n in self.closure[target] if not (pushed and self.kind[n] in ends)), default=INFINITE
        )

    def _value(self, node: int) -> float:
        kind = self.kind[node]
        if kind == NodeKind.BYTE:
            return min((1 + self._target(target) for _, target in self.edges[node]), default=INFINITE)
        if kind == NodeKind.CALL:
            return self._target(self.a[node], pushed=True) + self._target(self.b[node])
        if kind == NodeKind.END and self.a[node] in self.parts and self.b[node] > 0:
            return 0.5 - self._separators.get(self.a[node], 0.5)
        if kind == NodeKind.ENTER and self.a[node] in self.parts:
            loop = self.a[node]
            owed = self._owed(loop, frozenset())
            rounds = owed - self._separator(loop) if owed else self._shortest_part(loop)
            return rounds + self._target(self.after[loop])
        if kind == NodeKind.ENTER:
            loop = self.a[node]
            rounds = max(1, self.least[loop])
            return rounds * self._target(self.body[loop], pushed=True) + self._target(self.after[loop])
        return INFINITE if kind in (NodeKind.TOKENS, NodeKind.PLAIN) else 0

    def _shortest_part(self, loop: int) -> float:
        return min((self._target(first, pushed=True) for first in self.parts[loop]), default=INFINITE)

    def _separator(self, loop: int) -> float:
        """Fewest bytes of the separator of an unordered sequence."""
        found = self._separators.get(loop)
        return self._target(self.body[loop], pushed=True) if found is None else found

    def _owed(self, loop: int, used: frozenset[int]) -> float:
        """Fewest bytes of the required parts that are not ``used``, each with a separator before it."""
        required = self.least[loop] & 0x7FFF
        separator = self._separator(loop)
        return sum(
            separator + self._target(first, pushed=True)
            for part, first in enumerate(self.parts[loop])
            if part < required and part not in used
        )

    def _solve(self) -> None:
        """Least fixpoint by a work list: when a node's value falls, whatever is computed from it is looked at again."""
        users: dict[int, set[int]] = defaultdict(set)  # target -> nodes whose value reads it
        for node, kind in enumerate(self.kind):
            if kind == NodeKind.BYTE:
                read = [target for _, target in self.edges[node]]
            elif kind == NodeKind.CALL:
                read = [self.a[node], self.b[node]]
            elif kind == NodeKind.ENTER:
                read = [self.body[self.a[node]], self.after[self.a[node]], *self.parts.get(self.a[node], ())]
            else:
                read = []
            for target in read:
                users[target].add(node)
        holders: dict[int, list[int]] = defaultdict(list)  # node -> targets whose closure holds it
        for target in users:
            for node in self.closure[target]:
                holders[node].append(target)
        work = list(range(len(self.kind)))
        while work:
            node = work.pop()
            value = min(INFINITE, self._value(node))
            if value < self.node[node]:
                self.node[node] = value
                work += {user for target in holders[node] for user in users[target]}

    def _frame_set(self, frames: int, stack: int) -> float:
        """Bytes still owed below a level whose frames are ``frames``, holes being those of the stack cell ``stack``."""
        key = (frames, stack)
        known = self._frames.get(key)
        if known is not None:
            return known
        self._frames[key] = INFINITE  # a frame set never contains itself; this only ends a malformed one
        mem = self.index.mem
        entry = mem[layout.R + 3 * layout.FRAMESET] + 2 * frames
        first = mem[layout.R + 3 * layout.POOL] + mem[entry]
        best = INFINITE if mem[entry + 1] else 0
        for i in range(int(mem[entry + 1])):
            at = mem[layout.R + 3 * layout.FRAME] + 3 * mem[first + i]
            best = min(best, self._frame(int(mem[at]), int(mem[at + 1]), int(mem[at + 2]), stack))
        self._frames[key] = best
        return best

    def _frame(self, label: int, count: int, parent: int, stack: int) -> float:
        if label == layout.ROOT:
            return 0
        if label == layout.HOLE:
            mem = self.index.mem
            cell = mem[layout.R + 3 * layout.STACK] + 3 * stack
            symbol = mem[layout.R + 3 * layout.SYMBOL] + 3 * mem[cell]
            below = int(mem[mem[layout.R + 3 * layout.POOL] + mem[symbol] + count])
            return self._frame_set(below, int(mem[cell + 1]))
        if label >= 0:
            return self._target(label) + self._frame_set(parent, stack)
        loop = layout.LOOP - label
        if loop in self.parts:
            rest = self._target(self.after[loop]) + self._frame_set(parent, stack)
            return self._owed(loop, self._used(count)) + rest
        owed = max(0, self.least[loop] - count - 1)
        rounds = owed * self._target(self.body[loop], pushed=True) if owed else 0
        return rounds + self._target(self.after[loop]) + self._frame_set(parent, stack)

    def _used(self, number: int) -> frozenset[int]:
        """A set of parts of an unordered sequence: they are kept as sets of frames are (see `closure.part_set`)."""
        mem = self.index.mem
        entry = mem[layout.R + 3 * layout.FRAMESET] + 2 * number
        first = mem[layout.R + 3 * layout.POOL] + mem[entry]
        return frozenset(-1 - int(part) for part in mem[first : first + mem[entry + 1]])

    def _items(self, config: int) -> list[tuple[float, int]]:
        """(bytes to an end, node) of every item of a configuration."""
        mem = self.index.mem
        at = mem[layout.R + 3 * layout.CONFIG] + 3 * config
        stack = int(mem[at + 1])
        entry = mem[layout.R + 3 * layout.STATE] + 8 * mem[at]
        first = mem[layout.R + 3 * layout.POOL] + mem[entry + layout.S_OFFSET]
        items = [
            (int(mem[first + 2 * i]), int(mem[first + 2 * i + 1])) for i in range(mem[entry + layout.S_LENGTH] // 2)
        ]
        return [(self.node[node] + self._frame_set(frames, stack), node) for node, frames in items]

    def distance(self, config: int) -> float:
        """Fewest bytes from ``config`` to an end; `INFINITE` if there is none."""
        if self.index.can_finish(config):
            return 0
        return min((distance for distance, _ in self._items(config)), default=INFINITE)

    def bytes_from(self, config: int) -> bytes:
        """The shortest text from ``config`` to an end. Raises `NoWayOut`."""
        text = bytearray()
        expected = self.distance(config)
        while not self.index.can_finish(config):
            distance, node = min((item for item in self._items(config) if self.edges[item[1]]), default=(INFINITE, -1))
            if distance >= INFINITE:
                raise NoWayOut(f"after {bytes(text[-60:])!r}")
            byte = min(self.edges[node], key=lambda edge: self._target(edge[1]))[0]
            config = self.index.advance_bytes(config, bytes([byte]))
            text.append(byte)
            if config < 0 or len(text) > expected + self._slack:
                raise NoWayOut(f"the distances are wrong: {expected} bytes were promised, {bytes(text[-60:])!r}")
        return bytes(text)
