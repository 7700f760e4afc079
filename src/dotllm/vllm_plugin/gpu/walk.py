"""Engine core: lets the GPU follow the grammars, and follows it.

While the GPU samples token n + 1, nobody on the CPU knows token n yet; without walking, every constrained step
therefore waits for the last one's tokens (the overlap of asynchronous scheduling is lost). With it the workers walk
each grammar as far as its `ByteTable` is known to them, and the engine core comes behind: it takes the tokens that were
sampled, decides about ends, and sends what was missing. Nothing rests on the GPU being right: every token passes the
index here, and a request whose place the GPU did not know has sampled nothing (it repeats its step; `missed`).

A guide that remembers (`Guide.remembers`) is never followed by a table, which knows configurations only: its index has
one without rows, so the GPU waits for the CPU at each of its tokens.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Iterable
from itertools import count, repeat
from typing import Any, NamedTuple

import numpy as np

from dotllm.errors import SpecError
from dotllm.index import Index
from dotllm.index.gpu_tables import EXPANDED, FLAGS, NEVER, ROW, UNKNOWN_ROW, link_of
from dotllm.index.index import FINISHED
from dotllm.index.token_space import END_ROW, TokenSpace
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.engine_core.step_phases import LONGEST_PAUSE_S
from dotllm.vllm_plugin.gpu.entry import Entry
from dotllm.vllm_plugin.gpu.follow import TableBatch
from dotllm.vllm_plugin.gpu.heap import NO_RUNS, NOTHING, Heap
from dotllm.vllm_plugin.gpu.lead import Lead
from dotllm.vllm_plugin.gpu.prefetch import Prefetcher
from dotllm.vllm_plugin.gpu.walk_message import (
    ALL,
    BASE,
    COLUMNS,
    CONFIG,
    EPOCH,
    FREE,
    LENGTH,
    MASK,
    MISSING,
    PLACE,
    Tokens,
    WalkStep,
)
from dotllm.vllm_plugin.gpu_masks.message import TABLE_SLOTS, Int32
from dotllm.vllm_plugin.gpu_masks.rows import RowSender, masks_of

logger = logging.getLogger(__name__)

FILL_STEPS = 16  # steps between sendings of what was found ahead
IDLE_ENTRIES = 256  # tables kept for requests to come
TOGETHER = 4  # requests at places that are not known, from which on they are dealt with at once
LEARNING = 2  # of them whose way goes into their tables

TableKey = tuple[Index, tuple[int, ...], bool]
"""index, further stop tokens, whether forced text has its spelling"""
Unsettled = tuple[int, RequestGrammar, Entry, int, tuple[int, int] | None]
"""slot, grammar, table, configuration come to, and from which one by which token, if by one that was sampled"""

_CHANGES = count()


class Taken(NamedTuple):
    """What has become of a step's tokens."""

    flags: Int32
    """by position the flags that the tables have of the places come to, or 0"""
    left: list[int]
    """positions of those that the tables did not lead on; the only ones that vLLM may have to be told about"""


class Walk:
    """See the module. One per engine core."""

    def __init__(self, space: TokenSpace, sender: RowSender, slots: int) -> None:
        self.space = space
        self.sender = sender
        self.clock = 1  # of messages: what is in message t holds for the walk of its step
        self.slot_of: dict[str, int] = {}
        self.changes = next(_CHANGES)
        """which state of ``slot_of`` this is; no two have one number, in any walk"""
        self.grammars: list[RequestGrammar | None] = [None] * slots
        self.entry_of: list[Entry | None] = [None] * slots
        self.batch = TableBatch(space, slots, PLACE)
        self.lead = Lead()
        self._free = list(range(slots))[::-1]
        self._epoch = 0
        self._forbidden: dict[int, tuple[int, ...]] = {}  # by slot of those that are free so far
        self._entries: dict[TableKey, Entry] = {}  # least recently begun first
        self._active: dict[Entry, None] = {}  # those with slots
        self._filling: dict[Entry, None] = {}  # those that `prefetch` works on
        self._prefetcher = Prefetcher(space)
        self.results_are_there = self._prefetcher.results_are_there
        """To be called when they are, of some step."""
        self._heap = Heap(self._prefetcher.claims)
        self._space_epoch = space.epoch
        self.overflowed = False  # masks have outgrown the table: walking must end
        self._stale = True  # the GPU does not know some place that we know
        self._assigned: list[tuple[str, int]] = []
        self._released: list[str] = []
        self._send_tokens = True
        self._rows_needed: set[int] = set()
        self._unsettled: list[Unsettled] = []
        none = np.zeros((0, space.words), np.int32)
        self._nothing_new = WalkStep(sender.sender, NOTHING, none, NO_RUNS, NOTHING, None)
        self.steps = self.tokens = self.misses = 0
        self._report_at = 1 << 12

    def step_is_launched(self) -> None:
        """Of whatever requests: the loop is busy."""
        self._prefetcher.last_step = time.monotonic()

    def prompt_is_launching(self) -> None:
        """Of whatever requests: the loop is very busy until `is_launched`."""
        self._prefetcher.gate.close(LONGEST_PAUSE_S)

    def is_launched(self) -> None:
        """The forward pass is on its way."""
        self._prefetcher.gate.open()
        self._prefetcher.step_has_its_message()

    def close(self) -> None:
        """Nobody walks here any more: end the thread that works ahead."""
        self._prefetcher.close()

    # ---- requests

    def assign(self, request_id: str, grammar: RequestGrammar, length: int) -> None:
        """Begin to follow a request, whose grammar has taken all of its ``length`` tokens (prompt included)."""
        self.reserve(request_id)
        self.begin(request_id, grammar, length)

    def reserve(self, request_id: str) -> None:
        """A slot for a request, without a place as yet: until it gets one it samples nothing."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.slot_of[request_id] = slot
        self.changes = next(_CHANGES)
        self._epoch += 1
        self.batch.places[slot] = 0
        self.batch.places[slot, EPOCH] = self._epoch
        self._stale = True
        self._assigned.append((request_id, slot))

    def stay_free(self, request_id: str, length: int, forbidden: tuple[int, ...]) -> None:
        """A slot for a request that is not constrained so far, but for these tokens, until it gets its place (`begin`)
        or loses this one (`pause`)."""
        self.reserve(request_id)
        slot = self.slot_of[request_id]
        self._forbidden[slot] = forbidden
        place = self.batch.places[slot]
        place[LENGTH], place[CONFIG] = length, FREE
        self._find_free_mask(slot)

    def _find_free_mask(self, slot: int) -> None:
        row = self.sender.forbidden.row(self._forbidden[slot])
        if row >= TABLE_SLOTS:
            row, self.overflowed = MISSING, True
        if self.batch.places[slot, MASK] != row:
            # What the GPU has of this slot holds no more.
            self._epoch += 1
            self.batch.places[slot, EPOCH] = self._epoch
        self.batch.places[slot, MASK] = row
        self._stale = True

    @property
    def leases(self) -> Int32:
        """See `TableBatch.leases`."""
        return self.batch.leases

    def slots_of(self, requests: list[str]) -> Int32:
        """int32 [n], -1 for those that have none."""
        return np.fromiter(map(self.slot_of.get, requests, repeat(-1)), np.int32, len(requests))

    def took_freely(self, slots: Int32) -> None:
        """These have each sampled a token that no grammar is asked about."""
        self.batch.places[slots, LENGTH] += 1

    def pause(self, request_id: str) -> None:
        """A request is constrained from now on, and its grammar is not there: it samples nothing until `begin`."""
        slot = self.slot_of.get(request_id)
        if slot is not None:
            self._forbidden.pop(slot, None)
            self._epoch += 1
            self.batch.places[slot] = 0
            self.batch.places[slot, EPOCH] = self._epoch
            self._stale = True

    def begin(self, request_id: str, grammar: RequestGrammar, length: int) -> None:
        """Give a request with a slot, if it has one, its place."""
        slot = self.slot_of.get(request_id)
        if slot is None:
            return
        if slot in self._forbidden:
            self.pause(request_id)
        index = grammar.guide.index
        key = (index, grammar.stops, grammar.spells_forced_text)
        entry = self._entries.pop(key, None) or Entry(index, *key[1:])
        self._entries[key] = entry
        if len(self._entries) > len(self._active) + IDLE_ENTRIES:
            self._drop(next(k for k, e in self._entries.items() if e not in self._active and e is not entry))
        entry.uses += 1
        if not entry.filled and not grammar.stops and not grammar.guide.remembers and self._may_come_again(entry):
            self._filling[entry] = None
            self._prefetcher.want(entry)
        self.entry_of[slot] = entry
        entry.slots.add(slot)
        self._active[entry] = None
        if entry.link is not None and entry.is_seen():  # (that stays where it is until the next `_refresh`)
            self._point(entry, [slot])
        else:
            with self._prefetcher.claims.on(index.lock):
                self._refresh(entry)
                self._point(entry, [slot])
        # Last, since `leave` takes what is followed back from where its slot is.
        self.grammars[slot] = grammar
        grammar.followed = True
        self._settle(slot, grammar, entry, length, None)

    def _may_come_again(self, entry: Entry) -> bool:
        """Whether the table of ``entry`` is worth filling: not where schemas come once, before this one came twice."""
        return entry.uses > 1 or not self.lead.waits

    def release(self, request_id: str) -> None:
        """A request has ended."""
        slot = self.slot_of.pop(request_id, None)
        if slot is None:
            return
        self.changes = next(_CHANGES)
        self.batch.leases[slot] += 1
        entry = self.entry_of[slot]
        if entry is not None:
            entry.slots.discard(slot)
            if not entry.slots:
                del self._active[entry]
        self.grammars[slot] = self.entry_of[slot] = None
        self._forbidden.pop(slot, None)
        self.batch.places[slot] = 0
        self._free.append(slot)
        self._released.append(request_id)

    def _grow(self) -> None:
        old = len(self.grammars)
        self._free = list(range(old, 2 * old))[::-1]
        self.grammars += [None] * old
        self.entry_of += [None] * old
        self.batch.grow(2 * old)

    # ---- after a step

    def take(self, slots: Int32, leases: Int32, tokens: array[int], now: int) -> Taken:
        """Follow the tokens sampled in the step of message ``now``, for those requests who still hold their ``slots``
        under these ``leases``. (Arrays that come more than once must not be changed in between.)

        vLLM's own call for these tokens finds them taken (see `RequestGrammar.followed`), but for one that is not
        allowed or ends the request: that is left to vLLM.
        """
        if not len(slots):
            return Taken(NOTHING, [])
        self.tokens += len(slots)
        if self.tokens >= self._report_at:
            self._report_at *= 2
            logger.info("the GPU has followed %d tokens; %d times the CPU had to help", self.tokens, self.misses)
        left, flags = self.batch.follow_tables(slots, leases, tokens, now)
        unknown = self._take_by_machine(slots[left].tolist(), [tokens[i] for i in left], now) if left else 0
        self.lead.took(len(slots), unknown)
        return Taken(flags, left)

    def _take_by_machine(self, slots: list[int], tokens: list[int], now: int) -> int:
        """Follow tokens about which the tables said nothing. Returns how many of them went on to places that these do
        not know."""
        entries = {entry for slot in slots if (entry := self.entry_of[slot]) is not None}
        with self._prefetcher.claims.on(*(entry.index.lock for entry in entries)):
            for entry in entries:
                self._refresh(entry)
            behind = self.batch.follow(self.space, slots, tokens, now)
            slow = behind if len(behind) < TOGETHER else self._take_together(slots, tokens, behind)
            for i, config in slow:
                self._take_slowly(slots[i], tokens[i], config)
        return sum(config > 0 for _, config in behind)

    def _take_together(
        self, slots: list[int], tokens: list[int], behind: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """`_take_slowly` of those who just went on, at once; the others."""
        slow, here, configs = [], [], []
        for i, config in behind:
            slot = slots[i]
            grammar, entry = self.grammars[slot], self.entry_of[slot]
            assert grammar is not None and entry is not None
            if config <= 0 or grammar.guide.remembers or grammar.stopped:
                slow.append((i, config))
                continue
            self._unsettled.append((slot, grammar, entry, config, (int(self.batch.configs[slot]), tokens[i])))
            grammar.guide.config = config
            here.append(slot)
            configs.append(config)
        if here:
            self.batch.configs[here] = self.batch.places[here, CONFIG] = configs
            self.batch.places[here, LENGTH] += 1
            self.batch.places[here, MASK] = ALL
            self._stale = True
        return slow

    def _take_slowly(self, slot: int, token: int, config: int) -> None:
        grammar, entry = self.grammars[slot], self.entry_of[slot]
        assert grammar is not None and entry is not None
        self._stale = True
        previous = int(self.batch.configs[slot])
        remembers = grammar.guide.remembers
        if previous == FINISHED:  # its request goes on behind the end of the text (``ignore_eos``), freely
            if not remembers:
                grammar.guide.config = FINISHED
            self._stand_behind_the_end(slot, int(self.batch.places[slot, LENGTH]) + 1)
            return
        if not remembers:
            grammar.guide.config = previous
        if config < 0 or remembers:
            # Not allowed, a stop token, or the arena must grow: the ordinary way tells them apart.
            grammar.followed = False
            accepted = grammar.accept_tokens("walk", [token])
            if not accepted or grammar.is_terminated():
                grammar.take_back()  # vLLM asks again, and draws its conclusions
                if accepted:  # should it go on
                    self._stand_behind_the_end(slot, int(self.batch.places[slot, LENGTH]) + 1)
                return
            grammar.followed = True
        else:
            grammar.guide.config = config
        self._settle(slot, grammar, entry, int(self.batch.places[slot, LENGTH]) + 1, (previous, token))

    def spelling(self, slot: int) -> tuple[int, ...]:
        """The tokens that are forced where a slot is. Raises BudgetExceeded."""
        entry = self.entry_of[slot]
        assert entry is not None
        return entry.spelling(int(self.batch.configs[slot]))

    def jump(self, slot: int, tokens: list[int]) -> None:
        """Tokens that were not sampled have been entered into a request (see `jump_forward`), behind those taken."""
        grammar, entry = self.grammars[slot], self.entry_of[slot]
        assert grammar is not None and entry is not None
        grammar.guide.config = entry.after(int(self.batch.configs[slot]), tokens)
        # What the GPU walks now is a sampled token that does not count.
        self._epoch += 1
        self.batch.places[slot, EPOCH] = self._epoch
        self._settle(slot, grammar, entry, int(self.batch.places[slot, LENGTH]) + len(tokens), None)

    def leave(self) -> None:
        """The GPU walks no more: grammars are where they are, and go on in the ordinary way."""
        for request_id, slot in list(self.slot_of.items()):
            grammar = self.grammars[slot]
            if grammar is not None and grammar.followed:
                grammar.followed = False
                if not grammar.guide.remembers:
                    grammar.guide.config = int(self.batch.configs[slot])
            self.release(request_id)

    def resumed(self, request_id: str) -> None:
        """A request goes on after a preemption: the GPU begins anew with it."""
        slot = self.slot_of.get(request_id)
        if slot is None:
            return
        grammar, entry = self.grammars[slot], self.entry_of[slot]
        if grammar is None or entry is None:  # it has no place yet, or one that stays
            self._stale = True
            return
        self._settle_again(slot, grammar, entry)

    def missed(self, count: int) -> None:
        """``count`` requests have sat a step out."""
        self.misses += count
        self._stale = True

    # ---- tables

    def _settle(
        self, slot: int, grammar: RequestGrammar, entry: Entry, length: int, way: tuple[int, int] | None
    ) -> None:
        """Enter where a slot is; from the next message on its table has this place, and the way there.

        Its mask is found for that message, not now: results wait for this, and a step is launched before its message.
        """
        config = grammar.guide.config  # (kept up to date only by those who settle)
        if config == FINISHED or grammar.is_terminated():
            self._stand_behind_the_end(slot, length)
            return
        self.batch.configs[slot] = config
        place = self.batch.places[slot]
        place[LENGTH], place[CONFIG], place[MASK] = length, config, ALL
        self._stale = True
        self._unsettled.append((slot, grammar, entry, config, way))

    def _settle_again(self, slot: int, grammar: RequestGrammar, entry: Entry) -> None:
        """`_settle` where a slot is."""
        if not grammar.guide.remembers:
            grammar.guide.config = int(self.batch.configs[slot])
        self._settle(slot, grammar, entry, int(self.batch.places[slot, LENGTH]), None)

    def _stand_behind_the_end(self, slot: int, length: int) -> None:
        """A text has ended, and its request may go on (``ignore_eos``): freely, as vLLM has it."""
        self.batch.configs[slot] = FINISHED
        place = self.batch.places[slot]
        place[LENGTH], place[CONFIG], place[MASK] = length, FREE, ALL
        self._stale = True

    def _find_masks(self) -> None:
        """For those who have settled since the last message, and are still there.

        Where they have jumped on since (`jump`), the place they have left gets its mask, too: a table that says
        everything about it follows the next one who comes there.
        """
        unsettled, self._unsettled = self._unsettled, []
        if self.lead.waits:
            unsettled = self._find_together(unsettled)
        for slot, grammar, entry, config, way in unsettled:
            here = bool(self.batch.configs[slot] == config)
            if self.grammars[slot] is not grammar or not (here or way):
                continue
            row = UNKNOWN_ROW if way is not None else self._sent_row(entry, config)
            if row == UNKNOWN_ROW:
                try:
                    with self._prefetcher.claims.on(entry.index.lock):
                        row = self._know(entry, grammar, config, way)
                        self._refresh(entry)
                except SpecError as error:
                    if here:
                        grammar.fail("walk", error)
                    row = END_ROW  # the end is all it may say until vLLM ends it
            if not here:
                continue
            if row < TABLE_SLOTS:
                self.batch.places[slot, MASK] = row
            else:
                self.batch.places[slot, MASK], self.overflowed = MISSING, True

    def _find_together(self, unsettled: list[Unsettled]) -> list[Unsettled]:
        """The masks of most, in one call, and nothing for the tables; the others.

        Tables are `prefetch`'s work then: what a path adds to them takes the loop longer than its mask. Of those that
        it has left, a few places in each step are enough.
        """
        mine, others, learning = [], [], LEARNING
        for one in unsettled:
            slot, grammar, entry, config, _ = one
            here = self.grammars[slot] is grammar and self.batch.configs[slot] == config
            if not here or grammar.guide.remembers:
                others.append(one)
            elif learning and (entry.filled or entry.own_rows):
                learning -= 1
                others.append(one)
            else:
                mine.append(one)
        if not mine:
            return others
        entries = {entry for _, _, entry, _, _ in mine}
        with self._prefetcher.claims.on(*(entry.index.lock for entry in entries)):
            rows, failures = masks_of([grammar.guide for _, grammar, _, _, _ in mine])
            for entry in entries:
                self._refresh(entry)
        for i, error in failures.items():
            mine[i][1].fail("walk", error)
            rows[i] = END_ROW  # the end is all it may say until vLLM ends it
        for i, (_, grammar, entry, config, _) in enumerate(mine):
            if entry.own_rows and not grammar.failed:
                rows[i] = grammar.row_with_stops(int(rows[i]), config)
        beyond = rows >= TABLE_SLOTS
        if beyond.any():
            rows[beyond], self.overflowed = MISSING, True
        self.batch.places[[slot for slot, _, _, _, _ in mine], MASK] = rows
        return others

    def _sent_row(self, entry: Entry, config: int) -> int:
        """The mask of ``config`` if the device has it and its place (most requests begin where others have been)."""
        _, rows, since = entry.seen
        if config < len(rows) and since[config] != NEVER and rows[config, FLAGS] & EXPANDED:
            return int(rows[config, ROW])
        return UNKNOWN_ROW

    def _know(self, entry: Entry, grammar: RequestGrammar, config: int, way: tuple[int, int] | None) -> int:
        table = entry.table
        if grammar.guide.remembers:
            return grammar.row_with_stops(grammar.guide.mask_row, config)
        if way is not None:
            entry.changed |= {c for c in table.path(*way) if c < len(table.rows) and table.since[c] == NEVER}
        if table.expand([config]) or (config < len(table.rows) and table.since[config] == NEVER):
            entry.changed.add(config)
        row = grammar.row_with_stops(entry.index.mask_row(config), config)
        if config < len(table.rows) and table.rows[config, ROW] != row and row < TABLE_SLOTS:
            table.set_row(config, row)
            entry.changed.add(config)
        if entry.changed:
            self._heap.changed[entry] = None
        return row

    def _refresh(self, entry: Entry) -> None:
        if not entry.is_seen():
            now = (entry.index.machine, entry.table.rows, entry.table.since)
            entry.link = None
            self._point(entry, entry.slots)
            entry.seen = now

    def _point(self, entry: Entry, slots: Iterable[int]) -> None:
        if entry.link is None:
            entry.link = link_of(entry.index, entry.table)
        for slot in slots:
            self.batch.links[slot] = entry.link
            place = self.batch.places[slot]
            place[BASE], place[COLUMNS] = entry.base, entry.table.columns if entry.capacity else 0

    # ---- before a step

    def message(self) -> WalkStep:
        """What the workers need for the step that is being launched."""
        self.clock += 1
        self.steps += 1
        if self._space_epoch != self.space.epoch:
            self._forget_own_rows()
        if self._unsettled:
            self._find_masks()
        if self._filling and self.clock % FILL_STEPS == 0:
            self._send_filled()
        if not (self._stale or self._heap.changed or self._assigned or self._released or self._send_tokens):
            return self._nothing_new
        if self._heap.is_full():
            self._clear_heap()
        runs, patch, moved, masks = self._heap.patches(self.clock)
        self._rows_needed |= masks
        for entry in moved:
            with self._prefetcher.claims.on(entry.index.lock):
                self._refresh(entry)
                self._point(entry, entry.slots)
            self._stale = True
        if self._stale:
            # Those that were just found; and following may have found one in a table that got it from `prefetch` after
            # the table was sent.
            self._rows_needed.update(self.batch.unsent_masks(*self.sender.versions_at))
        new_slots, new_rows = self._nothing_new.new_slots, self._nothing_new.new_rows
        if self._rows_needed:
            rows = np.fromiter(self._rows_needed, np.int32, len(self._rows_needed))
            self._rows_needed.clear()
            new_slots, new_rows = self.sender.fresh(rows[rows < TABLE_SLOTS])
        step = WalkStep(
            self.sender.sender,
            new_slots,
            new_rows,
            runs,
            patch,
            self.batch.places.copy() if self._stale else None,
            self._assigned,
            self._released,
            self._tokens() if self._send_tokens else None,
        )
        self._stale = self._send_tokens = False
        self._assigned, self._released = [], []
        return step

    def _send_filled(self) -> None:
        """Send what was found ahead, in larger pieces."""
        for entry in list(self._filling):
            if entry.filled or entry.gone:
                del self._filling[entry]
            if entry.changed and not entry.gone:
                self._heap.changed[entry] = None

    def _forget_own_rows(self) -> None:
        """Masks with stop tokens in them are no index's, so their numbers hold for an epoch only: find them again."""
        self._space_epoch = self.space.epoch
        for entry in self._entries.values():
            if entry.own_rows:
                entry.table.rows[:, ROW] = UNKNOWN_ROW
                entry.changed |= set(np.nonzero(entry.table.rows[:, FLAGS])[0].tolist())
                self._heap.changed[entry] = None
        for slot in self._forbidden:
            self._find_free_mask(slot)
        for slot, grammar in enumerate(self.grammars):  # who stands still, as a preempted request does, has an old one
            stands_on = self.entry_of[slot]
            if stands_on is None or not stands_on.own_rows or grammar is None or not grammar.followed:
                continue
            if self.batch.places[slot, MASK] >= 0:
                self._settle_again(slot, grammar, stands_on)

    def _clear_heap(self) -> None:
        """Begin the heap anew. What the GPU has walked counts no more, since it may stand on a table that goes."""
        for key, entry in list(self._entries.items()):
            if entry not in self._active:
                self._drop(key)
        self._heap.begin_anew(self._entries.values())
        for entry in self._entries.values():
            for slot in entry.slots:
                self._epoch += 1
                self.batch.places[slot, EPOCH] = self._epoch
            with self._prefetcher.claims.on(entry.index.lock):
                self._refresh(entry)
                self._point(entry, entry.slots)  # at no table, until it has its place again
        self._stale = True

    def _drop(self, key: TableKey) -> None:
        """Nobody will come to a table any more."""
        self._entries.pop(key).gone = True

    def _tokens(self) -> Tokens:
        ends = np.zeros(self.space.words * 32, np.uint8)
        ends[: self.space.size] = self.space.ends
        packed = np.packbits(ends, bitorder="little").view(np.int32)
        return Tokens(self.space.token_data, self.space.token_offset, packed)

    def describe(self) -> dict[str, Any]:
        """Counters, for logs and tests."""
        return {"steps": self.steps, "tokens": self.tokens, "misses": self.misses, "heap_ints": self._heap.used}
