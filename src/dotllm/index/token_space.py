"""The data that all indexes of one vocabulary share: the tries to walk, the character sets, and the table of mask rows.

Rows have no duplicates: the masks of a long JSON text are a few dozen distinct rows, and a hundred schemas share
most of theirs. A row has the layout of vLLM, xgrammar and llguidance (see `mask_table`). The large arrays are reserved
at their final size and filled from the front. The operating system commits a page when it is first written, so nothing
has to move while kernels run on the arrays.

Indexes come and go, and a row stays only as long as an index refers to it: `collect` frees the others, and `intern`
uses their numbers again. A row number is valid while a live index refers to it; an unreferenced row survives until the
end of the next epoch. (An epoch lasts from one collection to the next: `EPOCH_S` or more.) Code that copies rows
elsewhere (to a GPU) compares ``versions``: the version of a row number rises whenever the number gets new content.

There is room for the tables of a fixed number of character sets. When little is left, the sets that no index has needed
for the longest time lose their tables (`make_room`): the indexes that use them forget them first, and walk the trie
from then on.
"""

from __future__ import annotations

import threading
import time
import weakref
from bisect import insort
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from dotllm.arrays import Bool, Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.subtrees import bytes_below
from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet, living_characters
from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.kinds import ExpressionKind
from dotllm.grammar.transform import children_of
from dotllm.index.mask_table import END_ROW, EPOCH, FREE, META_VERSION, USED, free_rows, intern_rows
from dotllm.system import reserved
from dotllm.vocabulary import Vocabulary
from dotllm.vocabulary.charset_table import CharsetTable
from dotllm.vocabulary.trie import Trie, build_trie
from dotllm.vocabulary.vocabulary import is_popular

# Allocates parts of an array, first fit, and takes them back.


class Ranges:
    """The free parts of an array of ``size``."""

    def __init__(self, size: int) -> None:
        self.used = 0
        """The size of the parts in use."""
        self._free = [(0, size)]  # (start, end), in order, none touching the next

    def take(self, size: int) -> int:
        """Take a part of this size. Returns its start, or -1 if there is none."""
        for i, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[i : i + 1] = [(start + size, end)] if start + size < end else []
                self.used += size
                return start
        return -1

    def give(self, start: int, size: int) -> None:
        """Give back a part from `take`."""
        self.used -= size
        insort(self._free, (start, start + size))
        merged: list[tuple[int, int]] = []
        for first, end in self._free:
            if merged and merged[-1][1] == first:
                merged[-1] = (merged[-1][0], end)
            elif first < end:
                merged.append((first, end))
        self._free = merged


# Chooses the character sets of a new automaton that are worth tables of the vocabulary (`vocabulary.charset_table`).
#
# A table costs time once: a walk over all tokens, and a sort of those that leave the set. That is 1 ms for ``[a-z]``,
# and 12 ms for a set that lacks a few letters, because half of all tokens leave it. A table saves time for every mask
# in a loop over the set: without a table, such a mask walks the tokens that stay inside, which takes up to 3 ms. A node
# with a loop has two or three such masks. A counted loop (``{1,63}``) has more, because every position near its limit
# has a mask of its own.
#
# `worth_tables` compares the two, in milliseconds:
#
#     cost  = 1 (2.5 for a set of nearly all characters) + tokens that leave the set / 6,000
#     saved = nodes with a loop over the set × 2 masks (20 if counted) × tokens that stay inside / 50,000
#
# A set gets a table if it saves at least its cost. A request waits for all tables of its automaton, so they may cost
# `MOST_MS` together: sets in counted loops come first, then those with the largest gain.
#
# A table that does not pay for one automaton may pay for many. So ``saved`` of a set without a table is kept, and added
# to ``saved`` of the next automaton with this set. The time for tables and for masks without them is therefore at most
# about twice what it would be if all automata were known beforehand (as in the ski-rental problem).

MOST_MS = 8.0
"""Milliseconds for all new tables of an automaton at most; the first that pays for a counted loop may take longer."""

_NARROW_MS, _WIDE_MS, _EXITS_PER_MS = 1.0, 2.5, 6_000  # to make a table
_INSIDE_PER_MS = 50_000  # to compute a mask without a table
_MASKS, _COUNTED_MASKS = 2, 20  # at a node
_WIDE_SIZE = MAX_CODE_POINT - 0x1000
_MOST_PASSED_OVER = 4096  # sets
_MOST_PASSED_RANGES = 1 << 17  # of these sets, some 16 MB: clients choose the sets

PassedOver = dict[CharSet, float]
"""Sets without tables, and the milliseconds that tables would have saved so far."""


def worth_tables(
    new: Sequence[tuple[int, CharSet, int]],
    counted: Callable[[], Collection[int]],
    tokens_at: Callable[[CharSet], tuple[int, int]],
    passed_over: PassedOver,
) -> set[int]:
    """The numbers of the sets out of ``new`` (number, set, nodes that loop over it) that get a table. Updates
    ``passed_over`` for the others.

    ``counted`` gives the numbers of sets in counted loops; ``tokens_at`` estimates how many tokens stay in a set and
    how many leave it.
    """
    if not new:
        return set()
    in_counted = counted()
    would_save: PassedOver = {}
    wanted: list[tuple[bool, float, float, int]] = []
    for number, charset, nodes in new:
        inside, exits = tokens_at(charset)
        cost = (_WIDE_MS if charset.size > _WIDE_SIZE else _NARROW_MS) + exits / _EXITS_PER_MS
        is_counted = number in in_counted
        saved = nodes * (_COUNTED_MASKS if is_counted else _MASKS) * inside / _INSIDE_PER_MS
        saved += passed_over.get(charset, 0.0)
        would_save[charset] = saved
        if cost <= saved:
            wanted.append((not is_counted, cost - saved, cost, number))
    result: set[int] = set()
    spent = 0.0
    for not_counted, _, cost, number in sorted(wanted):
        if spent + cost <= MOST_MS or not (result or not_counted):
            result.add(number)
            spent += cost
    ranges = sum(len(charset.ranges) for charset in [*passed_over])  # (other threads add to it meanwhile)
    if len(passed_over) > _MOST_PASSED_OVER or ranges > _MOST_PASSED_RANGES:
        passed_over.clear()
    for number, charset, _ in new:
        if number not in result:
            passed_over[charset] = would_save[charset]
        else:
            passed_over.pop(charset, None)
    return result


def counted_charsets(grammar: Grammar) -> set[int]:
    """The character sets (their numbers in ``grammar.charsets``) that occur in counted repetitions and networks."""
    result: set[int] = set()
    pending: list[int] = []
    kind, low, high = (np.array(column, np.int32) for column in (grammar.kind, grammar.b, grammar.c))
    repeats = (kind == ExpressionKind.REPEAT) & (high != 1) & ((high > 0) | (low > 1))
    for node in np.flatnonzero(repeats | ((kind == ExpressionKind.NETWORK) & (high > 0))).tolist():
        pending.extend(children_of(grammar, node))
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if grammar.kind[node] == ExpressionKind.CHARS:
            result.add(grammar.a[node])
        elif grammar.kind[node] != ExpressionKind.CALL:
            pending.extend(children_of(grammar, node))
    return result


MAX_CHARSETS = 512  # with tables (each takes 0.3 MB)
_SPARE_CHARSETS = 1 / 8  # the share of MAX_CHARSETS that should be free when an index is made
_FREED_CHARSETS = 1 / 4  # the share of MAX_CHARSETS that is freed at a time
MAX_ROW_BYTES = 512 << 20
MAX_ROWS = 1 << 17  # of a small vocabulary, whose rows are short
_TOGETHER = 32  # rows of a loaded index that are entered at a time: a batch's new masks wait about 0.4 ms for the lock
MOST_FILLED = 3 / 4  # the share of the table of rows above which rows are collected, because a full one takes no more
EPOCH_S = 1.0  # a step of an engine, whose rows may be known to no index, must be much shorter
_TRIE_NODES = 24 << 20  # reserved address space, not memory in use
_SET_INTS = 8 << 20  # reserved address space, not memory in use
_MOST_RANGES = 4096  # of characters that a vocabulary spells
_BEYOND_ASCII = CharSet.of((0x80, MAX_CODE_POINT))


_Parts = list[tuple[Ranges, int, int]]  # start, size
LARGE = 4 << 20  # bytes: a smaller index may always grow
MAX_TOGETHER = 1 << 30  # bytes of all indexes of a vocabulary that guides use


class RowOwner(Protocol):
    """The part of an index that the table of rows needs."""

    @property
    def lock(self) -> threading.RLock:
        """Held while the numbers of its rows are read or set."""

    @property
    def unique_nodes(self) -> frozenset[int]:
        """Not empty if its guides are stateful: see `Nfa`."""

    @property
    def used_at(self) -> int:
        """When a guide was last made (`TokenSpace.now`)."""

    @property
    def is_used(self) -> bool:
        """Whether guides are on it."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""

    def charset_numbers(self) -> Int32:
        """The numbers of the tables that it uses."""

    def forget_charsets(self, leaving: Bool) -> None:
        """Stop using the tables whose flags are set, bool [MAX_CHARSETS]. Hold its lock."""

    def row_numbers(self) -> list[Int32]:
        """Views of all row numbers (or negative marks) that it refers to, each int32 [n]."""


class TokenSpace:
    """See the module. `of` returns the only instance of a vocabulary."""

    _instances: ClassVar[weakref.WeakKeyDictionary[Vocabulary, TokenSpace]] = weakref.WeakKeyDictionary()
    _instances_lock = threading.Lock()

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenSpace:
        """The token space shared by all indexes of ``vocabulary``."""
        with cls._instances_lock:
            result = cls._instances.get(vocabulary)
            if result is None:
                result = cls._instances[vocabulary] = cls(vocabulary)
            return result

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.lock = threading.RLock()  # guards rows and sets
        self.words = vocabulary.words
        self.size = vocabulary.size
        self.max_token_bytes = max(1, int(vocabulary.max_token_bytes))
        self.token_data = np.array(vocabulary.token_data, np.uint8)
        self.token_offset = np.array(vocabulary.token_offset, np.int32)
        self.ends = np.zeros(vocabulary.size, np.bool_)
        self.eos = np.array(sorted(vocabulary.eos_token_ids), np.int32)
        self.ends[self.eos] = True
        self.alive_bytes = np.ones(256, np.bool_)
        self.alive_bytes[list(vocabulary.missing_bytes)] = False
        self.spellable_bytes = np.ones(256, np.bool_)
        """The bytes that are tokens of their own."""
        self.spellable_bytes[list(vocabulary.unspellable_bytes)] = False
        self.counts_bytes = vocabulary.unspellable_bytes == vocabulary.missing_bytes
        """Whether every byte that occurs in a token is also a token of its own."""
        self._living_characters: CharSet | None = living_characters(self.alive_bytes)
        if self._living_characters == ANY_CHAR:
            self._living_characters = None
        elif len(self._living_characters.ranges) > _MOST_RANGES:
            self._living_characters = CharSet(())
        self._vocabulary = weakref.ref(vocabulary)

        self.no_token_rows = np.zeros((1, self.words), np.int32)  # `Index.token_rows` of a grammar without token sets
        self.no_token_rows_at = self.no_token_rows.ctypes.data, 1

        self.trie_byte = reserved(_TRIE_NODES, np.uint8)
        self.trie_depth = reserved(_TRIE_NODES, np.int32)
        self.trie_end = reserved(_TRIE_NODES, np.int32)
        self.trie_token_start = reserved(_TRIE_NODES + 1, np.int32)
        self.trie_tokens = reserved(_TRIE_NODES, np.int32)
        self._nodes, self._tokens, self._ints = Ranges(_TRIE_NODES), Ranges(_TRIE_NODES), Ranges(_SET_INTS)
        main = self._put_trie(vocabulary.trie, [])
        if main is None:
            raise BudgetExceededError("the vocabulary is too large", keyword="vocabulary")
        self.main_end = main[1]
        self.trie_below = bytes_below(vocabulary.trie.byte, vocabulary.trie.depth, vocabulary.trie.end)

        self.sets = np.zeros((MAX_CHARSETS, L.K_WIDTH), np.int32)
        self.set_rows = reserved((MAX_CHARSETS * L.K_ROWS, self.words), np.int32)
        self.set_ints = reserved(_SET_INTS, np.int32)
        self._numbers: dict[CharSet, int] = {}  # by the result of `_living`
        self.now = 0
        """The number of indexes made so far, as a clock."""
        self._sets: list[tuple[CharSet, int, _Parts]] = [(CharSet(()), 0, [])] * MAX_CHARSETS
        """By number: the set, when an index last asked for it, and its parts of other arrays."""
        self._unused = [*reversed(range(MAX_CHARSETS))]
        self._freed_at = np.zeros(MAX_CHARSETS, np.int64)
        self.times_freed = 0
        """The number of times that sets have lost their tables."""
        self.moved: object = None
        """Becomes another object whenever the memory of an index moves."""
        self._is_freeing = False
        self._passed_over: PassedOver = {}

        capacity = min(MAX_ROWS, max(64, MAX_ROW_BYTES // (4 * self.words)))
        self.rows = reserved((capacity, self.words), np.int32)
        self.rows_used = np.zeros(4, np.int64)
        self._row_meta = np.zeros((capacity, 3), np.int64)
        self._free = np.empty(capacity, np.int32)
        self._epoch_began = -EPOCH_S
        self._is_collecting = False
        self._indexes: weakref.WeakSet[RowOwner] = weakref.WeakSet()
        self.has_stateful_guides = False
        """Whether guides of some index are stateful (`Guide.is_stateful`)."""
        self._table = np.zeros((1 << (2 * capacity - 1).bit_length(), 2), np.int64)
        self.row_store = (self.rows, self.rows_used, self._table, self._row_meta, self._free)
        """The arrays for `intern_row` and `intern_rows`."""
        only_end = np.zeros(self.words, np.int32)
        np.bitwise_or.at(
            only_end, self.eos >> 5, np.left_shift(np.uint32(1), (self.eos & 31).astype(np.uint32)).view(np.int32)
        )
        self.intern(only_end)

    def intern(self, row: Int32) -> int:
        """The number of a row with this content. Raises BudgetExceededError when the table is full."""
        return int(self.intern_all(row[None])[0])

    def intern_all(self, rows: Int32) -> Int32:
        """`intern` for rows int32 [n, words]. Returns int32 [n]."""
        numbers = np.empty(len(rows), np.int32)
        for start in range(0, len(rows), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            with self.lock:
                if not intern_rows(*self.row_store, rows[part], numbers[part]):
                    raise self.full()
        return numbers

    def spells_nothing(self) -> UnsupportedError:
        """The error for a mask without tokens, which only a vocabulary that lacks tokens for single bytes can cause."""
        return UnsupportedError(
            "no tokens of the vocabulary spell any text that this specification allows next",
            keyword="vocabulary",
            code="tokenizer",
        )

    def full(self) -> BudgetExceededError:
        """The error for a mask for which there is no room."""
        return BudgetExceededError(f"more than {len(self.rows)} distinct masks", keyword="memory")

    def check_share(self, asking: RowOwner) -> None:
        """Check the memory of ``asking``, which is about to grow. Indexes without guides, in a cache or in a program's
        hands, take no share.

        Raises:
            BudgetExceededError: all indexes that guides use exceed `MAX_TOGETHER`, and this one exceeds its share.
        """
        own = asking.nbytes
        if own < LARGE:
            return
        with self.lock:
            sizes = [index.nbytes for index in self._indexes if index is asking or index.is_used]
        large = sum(size >= LARGE for size in sizes)
        if sum(sizes) > MAX_TOGETHER and own * large > MAX_TOGETHER:
            raise BudgetExceededError(
                f"the automata of all requests need more than {MAX_TOGETHER >> 20} MiB; this one alone needs "
                f"{own >> 20} MiB",
                keyword="memory",
                help="lower repetition counts and length limits, or list fewer values or properties",
            )

    def register(self, index: RowOwner) -> None:
        """Register ``index``, which may refer to rows from now on."""
        with self.lock:
            self._indexes.add(index)
            self.has_stateful_guides = self.has_stateful_guides or bool(index.unique_nodes)

    def forget_freed(self, index: RowOwner, since: int) -> None:
        """Let a new index forget the tables that were freed while it was made. ``since``: `times_freed` before it got
        their numbers. Call this before the index is used, and after `register`."""
        if self.times_freed > since:
            with index.lock:
                index.forget_charsets(self._freed_at > since)

    def collect(self, rest_s: float = 0.0) -> int:
        """Begin an epoch: free the rows that no living index refers to and that have not been interned lately. Returns
        their number; 0, and begins none, if the last epoch began less than ``rest_s`` seconds ago, or its collection is
        still under way: rows interned meanwhile would be older than its last epoch, although it has not seen them.

        It waits for one index at a time, never for all together. A thread that interns a row holds the lock of the
        index that will refer to the row, until the index does. So when an index is examined, it refers to all its rows
        interned before this epoch. Rows interned since are kept.
        """
        with self.lock:
            now = time.monotonic()
            if self._is_collecting or now - self._epoch_began < rest_s:
                return 0
            self._is_collecting, self._epoch_began = True, now
            self.rows_used[EPOCH] += 1
            indexes = list(self._indexes)
        try:
            known = np.zeros(len(self.rows), np.bool_)
            known[END_ROW] = True
            for index in indexes:
                with index.lock:
                    for numbers in index.row_numbers():
                        known[numbers[numbers >= 0]] = True
            with self.lock:
                return int(free_rows(self.rows_used, self._table, self._row_meta, self._free, known))
        finally:
            self._is_collecting = False

    @property
    def epoch(self) -> int:
        """The number of collections so far."""
        return int(self.rows_used[EPOCH])

    @property
    def versions(self) -> npt.NDArray[np.int64]:
        """int64 [rows], not contiguous: raised whenever a row number gets new content; 0: it has had none yet."""
        return self._row_meta[:, META_VERSION]

    @property
    def row_count(self) -> int:
        """Rows that are not free."""
        return int(self.rows_used[USED] - self.rows_used[FREE])

    @property
    def nbytes(self) -> int:
        """Bytes in use (free rows not counted)."""
        return self.row_bytes + self._nodes.used * 17 + len(self._numbers) * L.K_ROWS * self.words * 4

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows in use, which decrease when indexes are freed."""
        return self.row_count * self.words * 4

    def known_charset(self, charset: CharSet) -> int:
        """The number of a set's tables, or -1 if it has none."""
        return self._numbers.get(self._living(charset), -1)

    def _living(self, charset: CharSet) -> CharSet:
        """The part of a set that tokens can spell; tables and examples use only this part. (Empty if the part has so
        many ranges that masks are computed faster without tables.)"""
        return charset if self._living_characters is None else charset & self._living_characters

    def charset_number(self, charset: CharSet) -> int:
        """The number of a set's tables, made on first use; -1 if no token spells any of its characters, or there is no
        room for another set."""
        charset = self._living(charset)
        if not charset.ranges:
            return -1
        with self.lock:
            is_new = charset not in self._numbers and self._unused
        vocabulary = self._vocabulary() if is_new else None
        # (without the lock: this takes up to 6 ms, and a batch that meets a new mask waits for the lock)
        table = None if vocabulary is None else vocabulary.charset_table(charset)
        with self.lock:
            number = self._numbers.get(charset)
            if number is None:
                if not self._unused or table is None:
                    return -1
                number = self._unused[-1]
                parts = self._put_set(number, charset, table)
                if parts is None:
                    return -1
                self._unused.pop()
                self._numbers[charset] = number
            else:
                parts = self._sets[number][2]
            self._sets[number] = charset, self.now, parts
            return number

    def make_room(self) -> None:
        """If little room is left, collect rows, and free the tables that have not been needed for the longest time.
        Hold no lock: this tells the indexes that use them, one after another."""
        if self.row_count > MOST_FILLED * len(self.rows):
            self.collect(EPOCH_S)
        with self.lock:
            self.now += 1
            spare = len(self.sets) * _SPARE_CHARSETS
            if self._is_freeing or (len(self._unused) > spare and 2 * self._nodes.used < len(self.trie_byte)):
                return
            self._is_freeing = True
            indexes = list(self._indexes)
        try:
            last: dict[int, int] = {}
            for index in indexes:
                for number in index.charset_numbers().tolist():
                    last[number] = max(last.get(number, 0), index.used_at)
            leaving = np.zeros(len(self.sets), np.bool_)
            with self.lock:
                free = [
                    (max(last.get(n, 0), self._sets[n][1]), n) for c, n in self._numbers.items() if not is_popular(c)
                ]
                leaving[[n for _, n in sorted(free)[: int(len(self.sets) * _FREED_CHARSETS)]]] = True
                self._numbers = {c: n for c, n in self._numbers.items() if not leaving[n]}
                self._freed_at[leaving] = self.times_freed + 1
                self.times_freed += 1
                indexes = list(self._indexes)  # indexes that register later check for themselves (`forget_freed`)
            for index in indexes:
                with index.lock:
                    index.forget_charsets(leaving)
            with self.lock:
                for number in np.flatnonzero(leaving).tolist():
                    for ranges, start, size in self._sets[number][2]:
                        ranges.give(start, size)
                    self._unused.append(number)
        finally:
            self._is_freeing = False

    def charset_numbers(
        self, charsets: Sequence[CharSet], uses: Sequence[int], counted: Callable[[], Collection[int]]
    ) -> Int32:
        """The numbers of the tables for a new automaton, -1 for sets without tables. ``uses``: how many of its nodes
        loop over each set. New tables are made where they pay (`worth_tables`, which also describes ``counted``);
        tables that are kept on disk are always used.
        """
        new = [
            (i, living, n)
            for i, n in enumerate(uses)
            if n
            and (living := self._living(charsets[i])) not in self._numbers
            and living.ranges
            and not is_popular(charsets[i])
        ]
        left_out: set[int] = set()
        if new and (vocabulary := self._vocabulary()) is not None:
            left_out = {i for i, _, _ in new} - worth_tables(new, counted, vocabulary.tokens_at, self._passed_over)
        return np.array(
            [self.charset_number(charsets[i]) if n and i not in left_out else -1 for i, n in enumerate(uses)], np.int32
        )

    def add_words(self, number: int) -> None:
        """Make the part of a set's tables that a kernel has asked for (see `layout.NEEDS_WORDS`)."""
        with self.lock:
            row = self.sets[number]
            vocabulary = self._vocabulary()
            if row[L.K_WORDS_END] != L.WORDS_UNKNOWN or vocabulary is None:
                return
            charset, _, parts = self._sets[number]
            words = self._put_trie(vocabulary.exit_words(charset), parts)
            if words is None:
                row[L.K_WORDS_END] = L.WORDS_NOWHERE
                return
            row[L.K_WORDS], row[L.K_WORDS_END] = words  # the end comes last: a kernel may be reading

    @cached_property
    def unfinished(self) -> tuple[Int32, int, int]:
        """The tokens that end inside a character: their bitmask int32 [words], and the nodes [low, high) of their
        trie."""
        lengths, ends = np.diff(self.token_offset), self.token_offset[1:]
        is_unfinished = np.zeros(self.size, np.bool_)
        goes_on = np.ones(self.size, np.bool_)  # all bytes so far continue a character
        for back, needs in enumerate((0xC0, 0xE0, 0xF0), 1):
            byte = (
                self.token_data[np.maximum(ends - back, 0)] if len(self.token_data) else np.zeros(self.size, np.uint8)
            )
            goes_on &= lengths >= back
            is_unfinished |= goes_on & (byte >= needs)
            goes_on &= (byte & 0xC0) == 0x80
        ids = np.flatnonzero(is_unfinished).astype(np.int32)
        trie = build_trie(self.token_data, self.token_offset[ids], lengths[ids], ids)
        members = np.zeros(self.words * 32, np.uint8)
        members[ids] = 1
        with self.lock:
            nodes = self._put_trie(trie, [])
        if nodes is None:
            raise self.full()
        low, high = nodes
        return np.packbits(members, bitorder="little").view(np.int32), low, high

    def _put_trie(self, trie: Trie, parts: _Parts) -> tuple[int, int] | None:
        """Copy a trie to free space, and add the space to ``parts``. Returns its node range; None: no room."""
        n, m = len(trie.byte), len(trie.tokens)
        low, tokens = (
            self._nodes.take(n + 1),
            self._tokens.take(m + 1),
        )  # (plus one for the end of the last node's tokens)
        parts += [
            (r, at, size) for r, at, size in ((self._nodes, low, n + 1), (self._tokens, tokens, m + 1)) if at >= 0
        ]
        if low < 0 or tokens < 0:
            return None
        self.trie_byte[low : low + n] = trie.byte
        self.trie_depth[low : low + n] = trie.depth
        self.trie_end[low : low + n] = trie.end
        self.trie_end[low : low + n] += low
        self.trie_token_start[low : low + n + 1] = trie.token_start
        self.trie_token_start[low : low + n + 1] += tokens
        self.trie_tokens[tokens : tokens + m] = trie.tokens
        return low, low + n

    def _put_ints(self, parts: _Parts, *arrays: Int32) -> tuple[int, int] | None:
        size = sum(map(len, arrays))
        start = self._ints.take(size)
        if start < 0:
            return None
        parts.append((self._ints, start, size))
        np.concatenate(arrays, out=self.set_ints[start : start + size])
        return start, start + size

    def _put_set(self, number: int, charset: CharSet, table: CharsetTable) -> _Parts | None:
        """Fill the tables of a set. Returns its parts of other arrays; None: there is no room."""
        parts: _Parts = []
        exits, by_count = self._put_trie(table.exits, parts), self._put_trie(table.exits_by_count, parts)
        starts = by_count and self._put_ints(parts, table.exits_by_count_start + np.int32(by_count[0]))
        long = self._put_ints(parts, table.long_tokens, table.long_chars)
        if exits is None or starts is None or long is None:
            for ranges, start, size in parts:
                ranges.give(start, size)
            return None
        row = self.sets[number]
        row[L.K_EXITS], row[L.K_EXITS_END] = exits
        row[L.K_WORDS_END] = L.WORDS_UNKNOWN
        row[L.K_COUNTS], row[L.K_MAX_COUNT] = starts[0], len(table.exits_by_count_start) - 2
        row[L.K_MAX_CHARS] = table.max_chars
        row[L.K_LONG], row[L.K_LONG_END] = long
        sequences = charset.utf8()
        example = bytes(low for low, _ in sequences[0])
        row[L.K_REP_END] = len(example)
        row[L.K_WIDE] = not self._living(_BEYOND_ASCII) - charset
        row[L.K_REP_BYTES : L.K_REP_BYTES + len(example)] = list(example)
        bits = [0] * 8
        for sequence in sequences:
            for byte in range(sequence[0][0], sequence[0][1] + 1):
                bits[byte >> 5] |= 1 << (byte & 31)
        row[L.K_FIRST_BYTES : L.K_FIRST_BYTES + 8] = np.array(bits, np.uint32).view(np.int32)
        self.set_rows[number * L.K_ROWS : (number + 1) * L.K_ROWS] = table.rows
        return parts
