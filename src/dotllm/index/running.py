"""Running guides: the guides of an engine's batch as arrays.

A step of a batch is one kernel call: it takes a token for each guide, and finds the rows of the next masks. The kernel
needs 0.02 ms for 256 guides; collecting their numbers from 256 Python objects took twenty times as long. So the
numbers of a running guide are only in these arrays, at its place, and its object is out of date until the guide leaves.

The arrays cover the ordinary step. A guide leaves if anything else happens to it (a token that is not allowed, an
index that has to grow, the end of its text), and `Guide` and `index.batch` do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from threading import RLock
from typing import NamedTuple

import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.automata.machine.arena import HURRIED_FUEL
from dotllm.automata.machine.masks import known_row
from dotllm.index.ahead import LookAhead
from dotllm.index.batch import rows_of
from dotllm.index.guide import Guide
from dotllm.index.kernels import I1, MACHINE, NEEDS_ROW, I, advance_running
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import Locks, Walkable, machines_of
from dotllm.jit import kernel

_FIRST_PLACES = 64
_TRAIL = 128  # after this many tokens a guide leaves, to record them in its history
_NO_TOKEN = -1
_WORTH = 3.0
"""With about six new masks a step (32 requests of a trained model), looking ahead made a token 7 to 9 % faster; with
0.2 (one request), about 4 % slower. Nothing between them was measured."""
_LATELY = 0.25  # the weight of the latest step in the mean of new masks


@kernel(I(I1, I1, I1))
def rows_at(places: Int32, rows: Int32, out: Int32) -> int:
    """out[i] = the row at places[i]; NEEDS_ROW where places[i] is below 0. Returns how many are NEEDS_ROW."""
    count = 0
    for i in range(places.shape[0]):
        out[i] = rows[places[i]] if places[i] >= 0 else NEEDS_ROW
        count += out[i] == NEEDS_ROW
    return count


class _Asked(NamedTuple):
    """Where guides are."""

    names: list[str]
    places: Int32
    """int32 [names]; -1: the guide does not run."""
    absent: dict[str, int]
    """The positions of those that do not run."""


class Running:
    """The running guides of a batch, by name (see the module). Not thread-safe."""

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self._guides: dict[int, Guide] = {}
        self._place: dict[str, int] = {}
        self._free: list[int] = []
        self._machines = np.empty((0, MACHINE), np.int64)
        self._configs, self._rows = np.empty(0, np.int32), np.empty(0, np.int32)
        self._trails = np.empty((0, 1 + _TRAIL), np.int32)
        self._indexes: dict[Walkable, int] = {}
        """For each index, how many of its guides run."""
        self._locks: Locks | None = None
        self._moved: object = None  # `TokenSpace.moved` when the arenas were last looked up
        self._asked: _Asked | None = None  # the last answer of `_places_of`
        self._look: LookAhead | None = None
        self._looking: Locks | None = None  # the locks held during a look-ahead
        self._found = 0  # how many new masks the last look-ahead met
        self._new_masks = 0.0
        """How many masks of a step have been new, lately."""

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def __len__(self) -> int:
        return len(self._place)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._place])

    def enter(self, name: str, guide: Guide) -> None:
        """Let ``guide``, which is of this token space and not stateful, run. Do not use its object until the guide
        leaves."""
        self.end_look()
        if not self._free:
            self._make_room()
        place = self._place[name] = self._free.pop()
        self._guides[place] = guide
        with guide.index.lock:
            row = max(known_row(guide.index.mem, guide.config), NEEDS_ROW)
        self._configs[place], self._trails[place, 0], self._rows[place] = guide.config, 0, row
        self._machines[place] = np.frombuffer(guide.index.machine, np.int64)
        self._count(guide.index, 1)
        if self._asked is not None and (at := self._asked.absent.pop(name, None)) is not None:
            self._asked.places[at] = place

    def leave(self, name: str) -> None:
        """Stop running a guide, if it runs, and bring its object up to date from the arrays."""
        self.end_look()
        place = self._place.pop(name, None)
        if place is not None:
            self._asked = None
            self._vacate(place)

    def _vacate(self, place: int) -> None:
        guide, trail = self._guides.pop(place), self._trails[place]
        guide.catch_up(trail[1 : 1 + trail.item(0)].tolist(), self._configs.item(place))
        self._free.append(place)
        self._count(guide.index, -1)

    def leave_all(self, lock: RLock) -> dict[str, int]:
        """Let the guides whose indexes have this lock leave. Returns the rows of their masks, below 0 if not known."""
        rows = {n: int(self._rows[p]) for n, p in self._place.items() if self._guides[p].index.lock is lock}
        for name in rows:
            self.leave(name)
        return rows

    def _count(self, index: Walkable, more: int) -> None:
        before = self._indexes.get(index, 0)
        self._indexes[index] = before + more
        if not before or not before + more:
            self._locks = None
            if not before + more:
                del self._indexes[index]

    def _make_room(self) -> None:
        before = len(self._configs)
        more = max(_FIRST_PLACES, before)
        for name in ("_machines", "_configs", "_rows", "_trails"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]))
        self._free.extend(range(before + more - 1, before - 1, -1))

    def absent(self, names: list[str]) -> list[int]:
        """The positions of the guides that do not run."""
        return [*self._places_of(names).absent.values()]

    def _places_of(self, names: list[str]) -> _Asked:
        """Where the guides are, which have different names. (Remembered while the batch stays the same.)"""
        asked = self._asked
        if asked is None or names != asked.names:
            places = np.fromiter(map(self._place.get, names, repeat(-1)), np.int32, len(names))
            absent = {names[i]: i for i in np.flatnonzero(places < 0).tolist()}
            self._asked = asked = _Asked(names.copy(), places, absent)
        return asked

    def _held(self) -> Locks:
        """The locks of all indexes."""
        if self._locks is None:
            self._locks = Locks([*self._indexes])
        return self._locks

    def _look_again(self) -> None:
        """Look up where the arenas are, if one of them has moved. Hold the locks."""
        moved = self.space.moved
        if moved is not self._moved:
            self._moved = moved
            self._machines[[*self._guides]] = machines_of([g.index for g in self._guides.values()]).reshape(-1, MACHINE)

    @property
    def is_worth_a_look(self) -> bool:
        """Whether so many masks have been new lately that a look-ahead saves time."""
        return self._new_masks >= _WORTH

    def look_ahead(self, names: list[str], tokens: Int64) -> None:
        """Let a helper find the masks after ``tokens``, int64 [names] (-1: no token), which these guides take next; see
        `ahead`. It ends with the next call of any method; until then, do not use the indexes of these guides."""
        self.end_look()
        locks, begun = self._held(), False
        if not locks.take_now():
            return
        try:
            self._look_again()
            if self._look is None or self._look.machines is not self._machines:
                self._look = LookAhead(self.space, self._machines, self._configs)
            begun = self._look.begin(self._places_of(names).places, tokens)
        finally:
            self._looking = locks if begun else None
            if not begun:
                locks.__exit__()

    def end_look(self) -> None:
        """End the look-ahead, if there is one."""
        locks, self._looking = self._looking, None
        if locks is not None and self._look is not None:
            try:
                self._found = self._look.end()
            finally:
                locks.__exit__()

    def take(self, names: list[str], tokens: list[list[int]]) -> list[int]:
        """Let each guide take its token. Returns the positions of the guides that have not: they do not run, do not
        have exactly one token, or need something else first. Those of them that run leave; so do guides that ended."""
        self.end_look()
        flat = [*chain.from_iterable(tokens)]
        if len(flat) != len(names) or not all(tokens):
            flat = [own[0] if len(own) == 1 else _NO_TOKEN for own in tokens]
        asked, space = self._places_of(names), self.space
        others, places = np.empty(len(names), np.int32), asked.places
        with self._held():
            self._look_again()
            count = advance_running(
                places, np.array(flat, np.int64), self._machines.ravel(), self._configs, self._trails, self._rows,
                space.token_data, space.token_offset, space.ends, space.words, HURRIED_FUEL, others,
            )  # fmt: skip
        not_taken = []
        for other in others[:count].tolist() if count else ():
            i = other if other >= 0 else ~other
            if other >= 0:
                not_taken.append(i)
            name, place = names[i], places.item(i)
            if place >= 0:
                del self._place[name]
                asked.absent[name], places[i] = i, -1
                self._vacate(place)
        return not_taken

    def rows(self, names: list[str]) -> tuple[Int32, list[int]]:
        """The rows of the guides' masks, int32 [names], and the positions without a row (NEEDS_ROW): the guide does not
        run, or its mask was not found."""
        self.end_look()
        _, places, absent = self._places_of(names)
        rows = np.empty(len(places), np.int32)
        count = rows_at(places, self._rows, rows)
        new, self._found = self._found + count - len(absent), 0
        self._new_masks += _LATELY * (new - self._new_masks)
        if count == len(absent):
            return rows, [*absent.values()]
        without = np.flatnonzero(rows == NEEDS_ROW).tolist()
        asked = {i: place for i in without if (place := places.item(i)) >= 0}
        indexes = [self._guides[place].index for place in asked.values()]
        with Locks(indexes):
            computed, failed = rows_of(indexes, self._configs[[*asked.values()]], hurried=True)
        for (i, place), row in zip(asked.items(), computed.tolist(), strict=True):
            self._rows[place] = rows[i] = row
        for k in failed:  # (asked for its mask, the guide says why, or moves to an index that has room)
            self.leave(names[[*asked][k]])
        return rows, [i for i in without if rows.item(i) < 0]
