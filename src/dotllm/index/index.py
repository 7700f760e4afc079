"""GrammarIndex: a grammar compiled against a vocabulary, shared by every sequence that is to follow it.

It starts almost empty and grows as sequences visit new situations (states, transitions, masks); all of it is flat
arrays (an arena, see `automata.machine.layout`; rows in the `TokenSpace`), so it can be saved, shared and loaded
warm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import index as as_integer
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.lowering import lower
from dotllm.automata.machine import layout, memory
from dotllm.automata.machine.arena import DEFAULT_LIMIT, FUEL, build, restart
from dotllm.automata.machine.run import advance_bytes, forced_bytes
from dotllm.charset import CharSet
from dotllm.errors import InvalidSpecError
from dotllm.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.index import limits, storage
from dotllm.index.batch import row_of
from dotllm.index.callers import no_configuration
from dotllm.index.charset_choice import counted_charsets
from dotllm.index.guide import Guide
from dotllm.index.kernels import advance_one
from dotllm.index.mask_table import EMPTY_ROW, ROWS_FULL
from dotllm.index.token_space import TokenSpace
from dotllm.index.unique import UniqueGuide
from dotllm.index.walkable import TokenSets
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Self

FINISHED, INITIAL = layout.FINISHED, layout.INITIAL


def token_set_rows(token_sets: TokenSets, vocabulary: Vocabulary) -> Int32:
    """Bitmasks int32 [sets, words] of sets of token ids.

    ``exclude``: of all others that stand for something, which is neither the end tokens nor ids that only pad the
    vocabulary.
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
    """Check that the vocabulary has a token of each set; without one, no text could go on there.

    Raises:
        InvalidSpecError: it has none.
    """
    for (ids, exclude), row in zip(token_sets, token_set_rows(token_sets, vocabulary), strict=True):
        if not row.any():
            what = "but those excluded" if exclude else f"with the id {min(ids, default='')}"
            raise InvalidSpecError(
                f"the vocabulary has no token {what}: its ids end at {vocabulary.size - 1}",
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
    ) -> None:
        """``unique_nodes``: see `Nfa`; if there are any, guides remember (`index.unique`)."""
        self.vocabulary = vocabulary
        self.unique_nodes = unique_nodes
        self.space = TokenSpace.of(vocabulary)
        self.lock = threading.RLock()
        self.token_sets = token_sets
        self.charsets = list(charsets)
        self.token_rows = token_set_rows(token_sets, vocabulary) if token_sets else self.space.no_token_rows
        self._set_memory(mem)
        self.space.register(self)

    def _set_memory(self, mem: Int32) -> None:
        self.mem = mem
        # for kernels over a batch: MACHINE words, as bytes, which are joined faster than numbers are put into an array
        about = (mem.ctypes.data, len(mem), self.token_rows.ctypes.data, len(self.token_rows), id(self.space))
        self.machine = np.array(about, np.int64).tobytes()

    # ---- constructors

    @classmethod
    def from_grammar_object(cls, grammar: Grammar, vocabulary: Vocabulary, *, limit: int = DEFAULT_LIMIT) -> Self:
        """Compile a `Grammar`. ``limit``: ints the automaton may grow to.

        Every byte of the automaton occurs in some token (see `lower`). If each such byte is a token by itself, as in
        all byte-level and byte-fallback tokenizers, no mask is ever empty. With other vocabularies the first mask is
        found here; a later one is an error when it is found.
        """
        space = TokenSpace.of(vocabulary)
        prepared = prepare(grammar)
        nfa = lower(prepared, space.alive_bytes)
        check_token_sets(nfa.token_sets, vocabulary)
        numbers = space.charset_numbers(nfa.charsets, nfa.charset_uses, partial(counted_charsets, prepared))
        arena = build(nfa, numbers, space.max_token_bytes, limit)
        index = cls(arena, vocabulary, nfa.token_sets, nfa.charsets, nfa.unique_nodes)
        if vocabulary.unspellable_bytes != vocabulary.missing_bytes:
            _ = index.guide().mask_row
        return index

    # ---- use

    def __repr__(self) -> str:
        found = f"{self.configurations:,} configurations found"
        return f"<{type(self).__name__} of {self.vocabulary!r}, {found}, {self.nbytes >> 10:,} KiB>"

    def guide(self) -> Guide:
        """A new sequence at the beginning."""
        return UniqueGuide(self) if self.unique_nodes else Guide(self)

    @property
    def masks(self) -> Int32:
        """The table of mask rows of this vocabulary, int32 [rows, words]; `Guide.mask_row` is an index into it."""
        return self.space.rows

    @property
    def nbytes(self) -> int:
        """Bytes of this index alone (rows are shared, see `TokenSpace.nbytes`)."""
        return 4 * memory.used(self.mem) + (self.token_rows.nbytes if self.token_sets else 0)

    @property
    def states(self) -> int:
        """How many states have been visited so far."""
        return self._used(layout.STATE)

    @property
    def configurations(self) -> int:
        """How many configurations (state and stack) have been visited so far."""
        return self._used(layout.CONFIG)

    def _used(self, region: int) -> int:
        return int(self.mem[layout.R + 3 * region + 2])

    def run(self, kernel: Callable[[Int32], int]) -> int:
        """Call a kernel with fuel, growing the arena as it asks; raises BudgetExceededError."""
        while True:
            self.mem[layout.H_FUEL] = FUEL
            code = int(kernel(self.mem))
            if code >= -1:
                return code
            self.recover(code)

    def recover(self, code: int) -> None:
        """React to an error code of a kernel: make what it lacks, grow the arena, or raise the named error."""
        if code <= layout.NEEDS_WORDS:
            self.space.add_words(layout.NEEDS_WORDS - code)
            return
        if code == ROWS_FULL:
            raise self.space.full()
        if code == EMPTY_ROW:
            raise self.space.spells_nothing()
        self._set_memory(memory.recover(self.mem, code))

    @property
    def nearly_full(self) -> bool:
        """Whether new sequences had better use `renewed`: more than half of the arena's limit is taken."""
        return 2 * memory.used(self.mem) > int(self.mem[layout.H_LIMIT])

    def renewed(self) -> Self:
        """An index of the same automaton that has found nothing yet. Guides of this one are not affected."""
        with self.lock:
            mem = self.mem
        return type(self)(restart(mem), self.vocabulary, self.token_sets, self.charsets, self.unique_nodes)

    def check_configuration(self, config: int) -> int:
        """``config``, if it is the number of a configuration of this index.

        Raises:
            IndexError: it is not.
            TypeError: it is no integer.
        """  # noqa: DOC501 - a function makes the error
        config = as_integer(config)
        if not 0 <= config < self.mem.item(layout.USED_CONFIG):
            raise no_configuration([self], [config])
        return config

    def advance(self, config: int, token: int) -> int:
        """The configuration after ``token``; -1: not allowed (as no id is that the vocabulary does not have). Raises as
        `check_configuration`."""
        config, token, space = self.check_configuration(config), as_integer(token), self.space
        if not 0 <= token < space.size:
            return -1
        with self.lock:
            while True:  # (`run` in place: its closure would be a tenth of the time of a step)
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
            raise ValueError(f"limit: a number of bytes is wanted, not {limit}")
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
            BudgetExceededError: the mask needs more steps, or the arena or the table of rows more memory, than their
                limits.
            UnsupportedError: the vocabulary has no tokens that spell what may come next (`TokenSpace.spells_nothing`).
            TypeError, IndexError: as `check_configuration`.
        """
        config = self.check_configuration(config)
        with self.lock:
            return row_of(self, config)

    # ---- limits on the tokens that are left

    def tokens_to_finish(self, config: int = INITIAL) -> int:
        """How many tokens suffice to end the text at ``config`` (by default: of a whole text), the end token included.

        A limit of so many tokens is kept if each mask is asked for with the tokens that are left (`mask_within`).

        Raises:
            BudgetExceededError: the shortest text is too long for a plan.
            UnsupportedError: no tokens of the vocabulary spell it.
            TypeError, IndexError: as `check_configuration`.
        """
        config = self.check_configuration(config)
        with self.lock:
            return limits.tokens_to_finish(self, config)

    def mask_within(self, config: int, tokens_left: int) -> Int32 | None:
        """The tokens, int32 [words], after which the text can be ended with the tokens that are left then; None where
        these are all that `mask_row` allows.

        ``tokens_left``: tokens that may come yet, the next one and the end token included.

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

    # ---- persistence

    def save(self, path: str | Path) -> None:
        """Write the index, with all it has found so far (see `index.storage`)."""
        storage.write(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | Path, vocabulary: Vocabulary) -> Self:
        """Read what `save` wrote. Raises ValueError for a file that is damaged, newer, or of another vocabulary."""
        return cls.from_bytes(Path(path).read_bytes(), vocabulary)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        with self.lock:
            mem = self.mem[: memory.used(self.mem)].copy()
        return storage.dump(mem, self.vocabulary, self.token_sets, self.charsets, self.unique_nodes)

    @classmethod
    def from_bytes(cls, data: bytes, vocabulary: Vocabulary) -> Self:
        """The index that `to_bytes` was called of. Raises as `load`."""
        return storage.load(data, vocabulary, cls)
