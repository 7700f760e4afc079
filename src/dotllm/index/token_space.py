"""What all indexes of one vocabulary share: the tries to walk, the character sets, and the table of mask rows.

Rows have no duplicates: the masks of a long JSON text are some dozens of distinct rows, and a hundred schemas share
most of theirs. A row has the layout of vLLM, xgrammar and llguidance (see `mask_table`). The large arrays are reserved
at their final size and filled from the front. The operating system gives memory to a page when it is first written, so
nothing has to be moved while kernels run on it.

Indexes come and go, and a row stays only as long as an index refers to it: `collect` frees the others, and `intern`
uses their numbers again. A row number is valid while a live index refers to it; an unreferenced row survives until the
end of the next epoch. (An epoch lasts from one collection to the next: seconds.) Code that copies rows elsewhere (to a
GPU) compares ``versions``: the version of a number is raised whenever it gets a content.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet, living_characters
from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.index.charset_choice import PassedOver, worth_tables
from dotllm.index.mask_table import END_ROW, EPOCH, FREE, META_VERSION, USED, free_rows, intern_rows
from dotllm.system.lazy_memory import reserved
from dotllm.vocabulary import Vocabulary
from dotllm.vocabulary.charset_table import CharsetTable
from dotllm.vocabulary.popular import is_popular
from dotllm.vocabulary.trie import Trie, build_trie

MAX_CHARSETS = 512  # further sets are walked without a table (each takes 0.3 MB)
MAX_ROW_BYTES = 512 << 20
MAX_ROWS = 1 << 17  # of a small vocabulary, whose rows are short
_TRIE_NODES = 24 << 20  # reserved, not used
_MOST_RANGES = 4096  # of characters that a vocabulary spells
_BEYOND_ASCII = CharSet.of((0x80, MAX_CODE_POINT))


class RowOwner(Protocol):
    """An index, as far as the table of rows knows it."""

    @property
    def lock(self) -> threading.RLock:
        """Held while the numbers of its rows are read or set."""

    @property
    def unique_nodes(self) -> frozenset[int]:
        """Whether its guides remember: see `Nfa`."""

    def row_numbers(self) -> list[Int32]:
        """Views of all row numbers (or negative marks) that it refers to, each int32 [n]."""


class TokenSpace:
    """See the module. `of` gives the one instance of a vocabulary."""

    _instances: ClassVar[weakref.WeakKeyDictionary[Vocabulary, TokenSpace]] = weakref.WeakKeyDictionary()
    _instances_lock = threading.Lock()

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenSpace:
        """The token space shared by all indexes of ``vocabulary``."""
        with cls._instances_lock:
            found = cls._instances.get(vocabulary)
            if found is None:
                found = cls._instances[vocabulary] = cls(vocabulary)
            return found

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
        """Those that are tokens by themselves."""
        self.spellable_bytes[list(vocabulary.unspellable_bytes)] = False
        self.counts_bytes = vocabulary.unspellable_bytes == vocabulary.missing_bytes
        """Whether every byte that some token has is a token by itself."""
        self._living_characters: CharSet | None = living_characters(self.alive_bytes)
        if self._living_characters == ANY_CHAR:
            self._living_characters = None
        elif len(self._living_characters.ranges) > _MOST_RANGES:
            self._living_characters = CharSet(())
        self._vocabulary = weakref.ref(vocabulary)

        self.no_token_rows = np.zeros((1, self.words), np.int32)  # `Index.token_rows` of a grammar without token sets

        self.trie_byte = reserved(_TRIE_NODES, np.uint8)
        self.trie_depth = reserved(_TRIE_NODES, np.int32)
        self.trie_end = reserved(_TRIE_NODES, np.int32)
        self.trie_token_start = reserved(_TRIE_NODES + 1, np.int32)
        self.trie_tokens = reserved(_TRIE_NODES, np.int32)
        self._trie_used = self._trie_tokens_used = 0
        if not self._has_room(vocabulary.trie):
            raise BudgetExceededError("the vocabulary is too large", keyword="vocabulary")
        self.main_end = self._append_trie(vocabulary.trie)[1]

        self.sets = np.zeros((MAX_CHARSETS, L.K_WIDTH), np.int32)
        self.set_rows = reserved((MAX_CHARSETS * L.K_ROWS, self.words), np.int32)
        self.set_ints = reserved(8 << 20, np.int32)
        self._set_ints_used = 0
        self._numbers: dict[CharSet, int] = {}  # by what `_living` leaves of a set
        self._passed_over: PassedOver = {}

        capacity = min(MAX_ROWS, max(64, MAX_ROW_BYTES // (4 * self.words)))
        self.rows = reserved((capacity, self.words), np.int32)
        self.rows_used = np.zeros(4, np.int64)
        self._row_meta = np.zeros((capacity, 3), np.int64)
        self._free = np.empty(capacity, np.int32)
        self._indexes: weakref.WeakSet[RowOwner] = weakref.WeakSet()
        self.has_stateful_guides = False
        """Whether guides of some index are stateful (`Guide.is_stateful`)."""
        self._table = np.zeros((1 << (2 * capacity - 1).bit_length(), 2), np.int64)
        self.row_store = (self.rows, self.rows_used, self._table, self._row_meta, self._free)
        """What `intern_row` and `intern_rows` take."""
        only_end = np.zeros(self.words, np.int32)
        np.bitwise_or.at(
            only_end, self.eos >> 5, np.left_shift(np.uint32(1), (self.eos & 31).astype(np.uint32)).view(np.int32)
        )
        self.intern(only_end)

    def intern(self, row: Int32) -> int:
        """The number of a row with this content. Raises BudgetExceededError when the table is full."""
        return int(self.intern_all(row[None])[0])

    def intern_all(self, rows: Int32) -> Int32:
        """`intern` for rows int32 [n, words]: int32 [n]."""
        numbers = np.empty(len(rows), np.int32)
        with self.lock:
            if not intern_rows(*self.row_store, rows, numbers):
                raise self.full()
        return numbers

    def spells_nothing(self) -> UnsupportedError:
        """The error of a mask without any token, which only vocabularies without a token for each byte can have."""
        return UnsupportedError(
            "the vocabulary has no tokens that spell any text that may come next under this specification",
            keyword="vocabulary",
            code="tokenizer",
        )

    def full(self) -> BudgetExceededError:
        """The error of a mask for which there is no room."""
        return BudgetExceededError(f"more than {len(self.rows)} distinct masks", keyword="memory")

    def register(self, index: RowOwner) -> None:
        """``index`` from now on may know rows."""
        with self.lock:
            self._indexes.add(index)
            self.has_stateful_guides = self.has_stateful_guides or bool(index.unique_nodes)

    def collect(self) -> int:
        """Begin an epoch: free the rows that no living index knows and nobody interned of late; how many.

        Waits for each index in turn, not for all at once. Whoever interns a row holds the lock of the index that is to
        know it until it does (or `lock`, for an index not yet registered). So a row interned before this epoch is known
        by its index when that is looked at, and one interned since is kept.
        """
        with self.lock:
            self.rows_used[EPOCH] += 1
            indexes = list(self._indexes)
        known = np.zeros(len(self.rows), np.bool_)
        known[END_ROW] = True
        for index in indexes:
            with index.lock:
                for numbers in index.row_numbers():
                    known[numbers[numbers >= 0]] = True
        with self.lock:
            return int(free_rows(self.rows_used, self._table, self._row_meta, self._free, known))

    @property
    def epoch(self) -> int:
        """The number of collections so far."""
        return int(self.rows_used[EPOCH])

    @property
    def versions(self) -> npt.NDArray[np.int64]:
        """int64 [rows], not contiguous: raised whenever a row number gets a content; 0: it has none yet."""
        return self._row_meta[:, META_VERSION]

    @property
    def row_count(self) -> int:
        """Rows that are not free."""
        return int(self.rows_used[USED] - self.rows_used[FREE])

    @property
    def nbytes(self) -> int:
        """Bytes in use (free rows not counted)."""
        return self.row_count * self.words * 4 + self._trie_used * 17 + len(self._numbers) * L.K_ROWS * self.words * 4

    def known_charset(self, charset: CharSet) -> int:
        """The number of a set's tables if they exist, else -1."""
        return self._numbers.get(self._living(charset), -1)

    def _living(self, charset: CharSet) -> CharSet:
        """The part of a set that tokens can spell: what tables are about, and examples must be of. (Empty where that
        would be so many ranges that masks are computed sooner without tables.)"""
        return charset if self._living_characters is None else charset & self._living_characters

    def charset_number(self, charset: CharSet) -> int:
        """The number of a set's tables, made on first use; -1 if no token spells any of its characters, or there is no
        room for another set."""
        charset = self._living(charset)
        if not charset:
            return -1
        found = self._numbers.get(charset)
        if found is not None:
            return found
        with self.lock:
            if charset in self._numbers:
                return self._numbers[charset]
            vocabulary = self._vocabulary()
            if len(self._numbers) >= MAX_CHARSETS or vocabulary is None:
                return -1
            number = self._append_set(charset, vocabulary.charset_table(charset))
            if number >= 0:
                self._numbers[charset] = number
            return number

    def charset_numbers(
        self, charsets: Sequence[CharSet], uses: Sequence[int], counted: Callable[[], Collection[int]]
    ) -> Int32:
        """The numbers of the tables for a new automaton, -1 for sets without any. ``uses``: how many of its nodes loop
        over each set. New tables are made where they pay (`charset_choice`, which also says what is ``counted``), but
        always those that are kept on disk.
        """
        popular = [is_popular(charset) for charset in charsets]
        charsets = [self._living(charset) for charset in charsets]
        new = [
            (i, charsets[i], n)
            for i, n in enumerate(uses)
            if n and charsets[i] and charsets[i] not in self._numbers and not popular[i]
        ]
        vocabulary = self._vocabulary()
        made: set[int] = set()
        if new and vocabulary is not None:
            made = worth_tables(new, counted, vocabulary.tokens_at, self._passed_over)
        left_out = {i for i, _, _ in new} - made
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
            words = vocabulary.exit_words(list(self._numbers)[number])
            if not self._has_room(words):
                row[L.K_WORDS_END] = L.WORDS_NOWHERE
                return
            low, high = self._append_trie(words)
            row[L.K_WORDS] = low
            row[L.K_WORDS_END] = high  # last: a kernel may be looking

    @cached_property
    def unfinished(self) -> tuple[Int32, int, int]:
        """The tokens that end inside a character: their bitmask int32 [words], and the nodes [low, high) of their
        trie."""
        lengths, ends = np.diff(self.token_offset), self.token_offset[1:]
        is_unfinished = np.zeros(self.size, np.bool_)
        goes_on = np.ones(self.size, np.bool_)  # all bytes looked at so far continue a character
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
            if not self._has_room(trie):
                raise self.full()
            low, high = self._append_trie(trie)
        return np.packbits(members, bitorder="little").view(np.int32), low, high

    def _has_room(self, *tries: Trie) -> bool:
        """Whether so many more nodes and tokens fit."""
        nodes, tokens = sum(len(trie.byte) for trie in tries), sum(len(trie.tokens) for trie in tries)
        return max(self._trie_used + nodes, self._trie_tokens_used + tokens) < len(self.trie_byte)

    def _append_trie(self, trie: Trie) -> tuple[int, int]:
        """Copy a trie behind the others, where there is room. Returns its node range."""
        n, m = len(trie.byte), len(trie.tokens)
        low, tokens = self._trie_used, self._trie_tokens_used
        self.trie_byte[low : low + n] = trie.byte
        self.trie_depth[low : low + n] = trie.depth
        self.trie_end[low : low + n] = trie.end
        self.trie_end[low : low + n] += low
        self.trie_token_start[low : low + n + 1] = trie.token_start
        self.trie_token_start[low : low + n + 1] += tokens
        self.trie_tokens[tokens : tokens + m] = trie.tokens
        self._trie_used = low + n
        self._trie_tokens_used = tokens + m
        return low, low + n

    def _append_ints(self, *parts: Int32) -> tuple[int, int]:
        start = self._set_ints_used
        end = start + sum(len(part) for part in parts)
        np.concatenate(parts, out=self.set_ints[start:end])
        self._set_ints_used = end
        return start, end

    def _append_set(self, charset: CharSet, table: CharsetTable) -> int:
        number = len(self._numbers)
        ints = len(table.exits_by_count_start) + 2 * len(table.long_tokens)
        if not self._has_room(table.exits, table.exits_by_count) or self._set_ints_used + ints > len(self.set_ints):
            return -1
        row = self.sets[number]
        row[L.K_EXITS], row[L.K_EXITS_END] = self._append_trie(table.exits)
        row[L.K_WORDS_END] = L.WORDS_UNKNOWN
        first, _ = self._append_trie(table.exits_by_count)
        starts = self._append_ints(table.exits_by_count_start + np.int32(first))
        long = self._append_ints(table.long_tokens, table.long_chars)
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
        return number
