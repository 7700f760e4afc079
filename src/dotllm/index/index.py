"""GrammarIndex: a grammar compiled against a vocabulary, shared by all sequences that follow it.

An index starts almost empty and grows as sequences reach new states, transitions and masks. All of it is flat arrays
(an arena, see `automata.machine.layout`; rows in the `TokenSpace`), so it can be saved, shared and loaded warm.

An arena has a limit, but texts may need ever more states. Numbers of configurations are valid only in their own
arena, so an index that is nearly full is left as it is, and renewed: new guides begin on an empty index of the same
automaton, to which the full index refers from then on. A guide that meets the limit moves (`Guide.move_on`): its
configuration is made again where there is room, and the full index is freed with its last guide. All indexes of one
automaton (its *generations*) share a lock.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import index as as_integer
from pathlib import Path
from struct import pack
from sys import getrefcount
from typing import TYPE_CHECKING

import numpy as np

from dotllm.arrays import Bool, Int32
from dotllm.automata.lowering import lower
from dotllm.automata.machine import arena, layout
from dotllm.automata.machine.arena import DEFAULT_LIMIT, FUEL, build, carry, restart
from dotllm.automata.machine.masks import forget_charsets
from dotllm.automata.machine.run import advance_bytes, forced_bytes
from dotllm.charset import CharSet
from dotllm.errors import InvalidSpecError
from dotllm.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.index import limits, storage
from dotllm.index.batch import row_of
from dotllm.index.callers import no_configuration
from dotllm.index.guide import Guide
from dotllm.index.kernels import address, advance_one
from dotllm.index.mask_table import EMPTY_ROW, ROWS_FULL
from dotllm.index.token_space import TokenSpace, counted_charsets
from dotllm.index.unique import UniqueGuide
from dotllm.index.walkable import Guides, TokenSets, Walkable
from dotllm.system import write_file
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Self

FINISHED, INITIAL = layout.FINISHED, layout.INITIAL
_NO_GUIDES = Guides()
"""`GrammarIndex.remembering` where no guides are stateful."""
_OWN_REFERENCES = 2  # of a lease: its index's, and the argument of `getrefcount`


def token_set_rows(token_sets: TokenSets, vocabulary: Vocabulary) -> Int32:
    """Bitmasks int32 [sets, words] of sets of token ids.

    A set with ``exclude`` holds all other tokens, except the end tokens and the ids that only pad the vocabulary.
    """
    rows = np.zeros((len(token_sets), vocabulary.words), np.int32)
    for i, (ids, exclude) in enumerate(token_sets):
        member = np.zeros(vocabulary.words * 32, np.uint8)
        listed = [t for t in ids if 0 <= t < vocabulary.size]
        if exclude:
            member[: vocabulary.size] = np.diff(vocabulary.token_offset) > 0
            member[[*vocabulary.special_tokens.values()]] = 1
            member[listed] = 0
            member[[*vocabulary.eos_token_ids]] = 0
        else:
            member[listed] = 1
        rows[i] = np.packbits(member, bitorder="little").view(np.int32)
    return rows


def check_token_sets(token_sets: TokenSets, vocabulary: Vocabulary) -> None:
    """Raise InvalidSpecError if the vocabulary has no token of some set: no text could continue there."""
    for (ids, exclude), row in zip(token_sets, token_set_rows(token_sets, vocabulary), strict=True):
        if not row.any():
            what = "except those excluded" if exclude else f"with the id {min(ids, default='')}"
            raise InvalidSpecError(
                f"the vocabulary has no token {what} (its ids end at {vocabulary.size - 1})",
                keyword="token",
                code="unknown_token",
            )


class GrammarIndex:
    """A grammar compiled against a vocabulary. `dotllm.Index` adds the constructors from texts.

    Thread-safe: a lock is held while a kernel works on the arena.
    """

    def __init__(
        self,
        mem: Int32,
        vocabulary: Vocabulary,
        token_sets: TokenSets,
        charsets: Sequence[CharSet],
        unique_nodes: frozenset[int] = frozenset(),
        before: Self | None = None,
    ) -> None:
        """``unique_nodes``: see `Nfa`; if there are any, guides are stateful (`index.unique`). ``before``: another
        generation."""
        self.vocabulary = vocabulary
        self.unique_nodes = unique_nodes
        self.space = TokenSpace.of(vocabulary)
        self.lock = threading.RLock()
        """Held while a kernel works on the arena."""
        self.remembering = Guides() if unique_nodes else _NO_GUIDES
        """The stateful guides of all generations."""
        self._next: Self | None = None
        self._generations: weakref.WeakSet[Self] | None = None  # until there is a second
        self._begun_with = 0
        if before is not None:
            self.lock, self.remembering = before.lock, before.remembering
            if before._generations is None:
                before._generations = weakref.WeakSet((before,))
            self._generations = before._generations
            self._generations.add(self)
            self._begun_with = arena.result_ints(mem)
        self.token_sets = token_sets
        self.charsets = list(charsets)
        self.token_rows, self._token_rows_at = self.space.no_token_rows, self.space.no_token_rows_at
        if token_sets:
            self.token_rows = token_set_rows(token_sets, vocabulary)
            """The bitmasks of ``token_sets``, int32 [sets, words]."""
            self._token_rows_at = self.token_rows.ctypes.data, len(token_sets)
        self._set_memory(mem)
        self.used_at = 0
        """When a guide was last made (`TokenSpace.now`)."""
        self.lease = object()
        """Kept by each guide that is on this index, or may roll back to it."""
        self.space.register(self)

    @property
    def generations(self) -> Collection[Self]:
        """All living generations, including this one."""
        return (self,) if self._generations is None else self._generations

    def _set_memory(self, mem: Int32) -> None:
        self.mem = mem
        """The arena, int32 [n]; a new array after it has grown."""
        # for kernels over a batch: MACHINE words as bytes, because joining bytes is faster than putting numbers into an
        # array
        self.machine = pack("=5q", address(mem), len(mem), *self._token_rows_at, id(self.space))
        self.space.moved = object()

    # ---- constructors

    @classmethod
    def from_grammar_object(cls, grammar: Grammar, vocabulary: Vocabulary, *, limit: int = DEFAULT_LIMIT) -> Self:
        """Compile a `Grammar`. ``limit``: the size in ints up to which the automaton may grow.

        Every byte of the automaton occurs in some token (see `lower`). If each of these bytes is also a token of its
        own, as in all byte-level and byte-fallback tokenizers, no mask is ever empty. With other vocabularies the first
        mask is found here, and refused if it is empty; an empty mask found later raises an error.
        """
        space = TokenSpace.of(vocabulary)
        prepared = prepare(grammar)
        nfa = lower(prepared, space.alive_bytes)
        if nfa.token_sets:
            check_token_sets(nfa.token_sets, vocabulary)
        space.make_room()
        since = space.times_freed
        numbers = space.charset_numbers(nfa.charsets, nfa.charset_uses, partial(counted_charsets, prepared))
        arena = build(nfa, numbers, space.max_token_bytes, limit)
        index = cls(arena, vocabulary, nfa.token_sets, nfa.charsets, nfa.unique_nodes)
        space.forget_freed(index, since)
        if vocabulary.unspellable_bytes != vocabulary.missing_bytes:
            _ = index.guide().mask_row
        return index

    # ---- use

    def __repr__(self) -> str:
        result = f"{self.configurations:,} configurations found"
        return f"<{type(self).__name__} of {self.vocabulary!r}, {result}, {self.nbytes >> 10:,} KiB>"

    def guide(self) -> Guide:
        """A new guide at the beginning of a text. (It is on another index if this one is nearly full.)"""
        index = self.newest() if self.nearly_full else self
        index.used_at = index.space.now
        return UniqueGuide(index) if self.unique_nodes else Guide(index)

    @property
    def masks(self) -> Int32:
        """The table of mask rows of this vocabulary, int32 [rows, words]; `Guide.mask_row` is an index into it."""
        return self.space.rows

    @property
    def nbytes(self) -> int:
        """Bytes of this index alone (rows are shared, see `TokenSpace.nbytes`)."""
        return 4 * arena.used(self.mem) + (self.token_rows.nbytes if self.token_sets else 0)

    @property
    def is_used(self) -> bool:
        """Whether a living guide keeps the `lease`."""
        return getrefcount(self.lease) > _OWN_REFERENCES

    @property
    def result_bytes(self) -> int:
        """Bytes of what it has found so far, which `to_bytes` copies while it holds `lock`."""
        return storage.result_bytes(self.mem)

    @property
    def remembered_bytes(self) -> int:
        """Bytes that its stateful guides hold (see `index.unique`)."""
        return self.remembering.nbytes_on(self) if self.unique_nodes else 0

    @property
    def states(self) -> int:
        """The number of states visited so far."""
        return self._used(layout.STATE)

    @property
    def configurations(self) -> int:
        """The number of configurations (state and stack) visited so far."""
        return self._used(layout.CONFIG)

    def _used(self, region: int) -> int:
        return int(self.mem[layout.R + 3 * region + 2])

    def run(self, kernel: Callable[[Int32], int]) -> int:
        """Call a kernel with fuel, and grow the arena when the kernel asks for it. Raises BudgetExceededError."""
        while True:
            self.mem[layout.H_FUEL] = FUEL
            code = int(kernel(self.mem))
            if code >= -1:
                return code
            self.recover(code)

    def recover(self, code: int, *, hurried: bool = False) -> None:
        """Recover from an error code of a kernel: make the missing data, grow the arena, or raise the named error."""
        if code <= layout.NEEDS_WORDS:
            self.space.add_words(layout.NEEDS_WORDS - code)
            return
        if code == ROWS_FULL:
            raise self.space.full()
        if code == EMPTY_ROW:
            raise self.space.spells_nothing()
        if code <= layout.FULL:
            self.space.check_share(self)
        self._set_memory(arena.recover(self.mem, code, hurried=hurried))

    @property
    def nearly_full(self) -> bool:
        """Whether new sequences should begin elsewhere: more than half of the space that the automaton leaves in the
        arena is in use."""
        mem = self.mem
        room = mem.item(layout.H_LIMIT) - mem.item(layout.H_FIRST)
        return self._next is not None or (
            2 * mem.item(layout.H_END) > room
            and 2 * (arena.result_ints(mem) - self._begun_with) > room - self._begun_with
        )

    def newest(self, full: Walkable | None = None) -> Self:
        """The generation on which new guides begin: neither nearly full, nor ``full``, which could not grow further."""
        with self.lock:
            newest = self._next or self
            if newest is full or newest.nearly_full:
                newest = newest.renewed()
                for other in self.generations:  # (in all of them: a chain would keep the generations between alive)
                    other._next = newest if other is not newest else None
            return newest

    def renewed(self) -> Self:
        """A new index of the same automaton, without states or masks. Guides of this one are not affected."""
        with self.lock:
            since = self.space.times_freed
            again = (restart(self.mem), self.vocabulary, self.token_sets, self.charsets, self.unique_nodes)
            index = type(self)(*again, before=self)
            self.space.forget_freed(index, since)
            return index

    def carried(self, other: Walkable, config: int) -> int:
        """The configuration of this index that equals ``config`` of another generation. Raises ArenaFull. Hold
        `lock`."""
        there = other.mem
        limits.take_ways(self.mem, there)
        return self.run(lambda mem: int(carry(there, config, mem)))

    def check_configuration(self, config: int) -> int:
        """``config``, if this index has it. Raises IndexError if it does not, TypeError if it is not an integer."""
        config = as_integer(config)
        if not 0 <= config < self.mem.item(layout.USED_CONFIG):
            raise no_configuration([self], [config])
        return config

    def advance(self, config: int, token: int) -> int:
        """The configuration after ``token``; -1 if it is not allowed (or not an id of the vocabulary). Raises as
        `check_configuration`."""
        config, token, space = self.check_configuration(config), as_integer(token), self.space
        if not 0 <= token < space.size:
            return -1
        with self.lock:
            while True:  # (`run` inlined: its closure would take a tenth of the time of a step)
                mem = self.mem
                mem[layout.H_FUEL] = FUEL
                after: int = advance_one(
                    mem, config, token, space.token_data, space.token_offset, space.ends, self.token_rows
                )
                if after >= -1:
                    return after
                self.recover(after)

    def advance_bytes(self, config: int, data: bytes) -> int:
        """The configuration after raw bytes; -1: not allowed. Raises as `check_configuration`."""
        config = self.check_configuration(config)
        array = np.frombuffer(bytearray(data), np.uint8)
        with self.lock:
            return self.run(lambda mem: advance_bytes(mem, config, array))

    def forced_bytes(self, config: int, limit: int = 4096) -> bytes:
        """The bytes that must come next, at most ``limit``.

        Raises:
            ValueError: ``limit`` is below 0.
            TypeError, IndexError: as `check_configuration`.
        """
        config = self.check_configuration(config)
        if limit < 0:
            raise ValueError(f"limit must be at least 0, not {limit}")
        out = np.empty(limit, np.uint8)
        with self.lock:
            n = self.run(lambda mem: forced_bytes(mem, config, out))
        return out[:n].tobytes()

    def can_finish(self, config: int) -> bool:
        """Whether the text may end at ``config``. Raises as `check_configuration`."""
        config = self.check_configuration(config)
        if config == FINISHED:
            return True
        mem = self.mem
        state = mem[mem[layout.AT_CONFIG] + 3 * config]
        return bool(mem[mem[layout.AT_STATE] + layout.S_WIDTH * state + layout.S_FLAGS] & layout.ACCEPTS)

    def mask_row(self, config: int) -> int:
        """The row of the mask of ``config`` in `masks`, computed on the first visit.

        Raises:
            BudgetExceededError: the mask needs more steps, or the arena or the table of rows needs more memory, than
                its limit allows.
            UnsupportedError: no tokens of the vocabulary spell any text that may come next
                (`TokenSpace.spells_nothing`).
            TypeError, IndexError: as `check_configuration`.
        """
        config = self.check_configuration(config)
        with self.lock:
            return row_of(self, config)

    # ---- limits on the tokens that are left

    def tokens_to_finish(self, config: int = INITIAL) -> int:
        """The number of tokens that suffice to end the text at ``config`` (by default, to write a whole text),
        including the end token.

        A limit of at least this many tokens is kept if each mask is found with the number of tokens left
        (`mask_within`).

        Raises:
            BudgetExceededError: the shortest text is too long for a plan.
            UnsupportedError: no tokens of the vocabulary spell it.
            TypeError, IndexError: as `check_configuration`.
        """
        config = self.check_configuration(config)
        limits.find_ways_apart(self)
        with self.lock:
            return limits.tokens_to_finish(self, config)

    def mask_within(self, config: int, tokens_left: int) -> Int32 | None:
        """The mask, int32 [words], of the tokens after which the remaining tokens can end the text; None if it is the
        mask of `mask_row`.

        ``tokens_left``: the number of tokens that may still come, including the next one and the end token.

        Raises:
            TooFewTokensError: ``tokens_left`` is less than `tokens_to_finish`.
            BudgetExceededError, UnsupportedError, TypeError, IndexError: as `mask_row` and `tokens_to_finish`.
        """
        config, tokens_left = self.check_configuration(config), as_integer(tokens_left)
        if config == FINISHED:
            return None
        with self.lock:
            return limits.mask_within(self, config, tokens_left)

    def row_numbers(self) -> list[Int32]:
        """Views of all row numbers (or negative marks) in the arena, each int32 [n]. Hold `lock`."""
        return storage.row_numbers(self.mem)

    def charset_numbers(self) -> Int32:
        """The numbers of the character sets whose tables (`TokenSpace.sets`) this index uses."""
        with self.lock:
            first, nodes = self.mem.item(layout.H_CHARSET), self.mem.item(layout.H_NODES)
            numbers: Int32 = np.unique(self.mem[first : first + nodes])
        return numbers[numbers >= 0]

    def forget_charsets(self, leaving: Bool) -> None:
        """Stop using the tables whose flags are set. Hold `lock`."""
        forget_charsets(self.mem, leaving)

    # ---- persistence

    def save(self, path: str | Path) -> None:
        """Write the index, with everything it has found so far (see `index.storage`)."""
        write_file(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | Path, vocabulary: Vocabulary) -> Self:
        """Read what `save` wrote. Raises ValueError for a file that is damaged, or of another version or vocabulary."""
        return cls.from_bytes(Path(path).read_bytes(), vocabulary)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        with self.lock:
            saved = storage.snapshot(self.mem)
            known = np.array([self.space.known_charset(charset) for charset in self.charsets], np.int32)
        return storage.dump(saved, self.vocabulary, self.token_sets, self.charsets, known, self.unique_nodes)

    @classmethod
    def from_bytes(cls, data: bytes, vocabulary: Vocabulary) -> Self:
        """The index from the bytes of `to_bytes`. Raises as `load`."""
        return storage.load(data, vocabulary, cls)
