"""Index: a grammar compiled against a vocabulary, shared by every sequence that is to follow it.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.lowering import lower
from dotllm.automata.machine import layout, memory
from dotllm.automata.machine.arena import DEFAULT_LIMIT, FUEL, build, restart
from dotllm.automata.machine.masks import NEEDS_WORDS, find_row, known_row, remember_row
from dotllm.automata.machine.run import advance, advance_bytes, forced_bytes
from dotllm.errors import InvalidSpec
from dotllm.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.index.charset_choice import counted_charsets
from dotllm.index.token_space import END_ROW, ROWS_FULL, TokenSpace
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dotllm.index.guide import Guide
    from dotllm.languages.cfg import Dialect

TokenSets = list[tuple[frozenset[int], bool]]

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
    """Raise `InvalidSpec` for a set of which the vocabulary has no token: whoever came to it could not go on."""
    for (ids, exclude), row in zip(token_sets, token_set_rows(token_sets, vocabulary), strict=True):
        if not row.any():
            what = "but those excluded" if exclude else f"with the id {min(ids, default='')}"
            raise InvalidSpec(
                f"the vocabulary has no token {what}: its ids end at {vocabulary.size - 1}", keyword="token"
            )


class Index:
    """A specification compiled against a vocabulary; any number of sequences walk it, each with its `guide`.

    Made by the ``from_…`` constructors (or `load`), which raise `InvalidSpec`, `Unsupported` or `BudgetExceeded`, all
    of them ValueErrors that say what and where. It grows as sequences visit new situations; `save` keeps what has
    been found.

    Thread-safe: a lock is held while a kernel works on the arena.
    """

    def __init__(
        self,
        mem: Int32,
        vocabulary: Vocabulary,
        token_sets: TokenSets,
        charsets: Sequence[Any],
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
    def from_grammar_object(cls, grammar: Grammar, vocabulary: Vocabulary, *, limit: int = DEFAULT_LIMIT) -> Index:
        """Compile a `Grammar`. ``limit``: ints the automaton may grow to."""
        space = TokenSpace.of(vocabulary)
        prepared = prepare(grammar)
        nfa = lower(prepared, space.alive_bytes)
        check_token_sets(nfa.token_sets, vocabulary)
        numbers = space.charset_numbers(nfa.charsets, nfa.charset_uses, partial(counted_charsets, prepared))
        return cls(build(nfa, numbers, space.reach, limit), vocabulary, nfa.token_sets, nfa.charsets, nfa.unique_nodes)

    @classmethod
    def from_regex(cls, pattern: str, vocabulary: Vocabulary, **options: Any) -> Index:
        """Texts that match the whole ``pattern`` (docs/regex.md).

        Options: ``search=True``: it need only match somewhere; ``dialect``: "python", or "ecma" as in JSON Schema.
        """
        from dotllm.languages.regex import regex_to_grammar

        return cls.from_grammar_object(regex_to_grammar(pattern, **options), vocabulary)

    @classmethod
    def from_choice(cls, choices: Sequence[str], vocabulary: Vocabulary) -> Index:
        """Exactly one of ``choices``."""
        from dotllm.languages.choice import choice_to_grammar

        return cls.from_grammar_object(choice_to_grammar(choices), vocabulary)

    @classmethod
    def from_json_schema(cls, schema: Any, vocabulary: Vocabulary, **options: Any) -> Index:
        """JSON texts that are valid under ``schema`` (a dict, a bool or JSON text; docs/json-schema.md).

        Options: ``order``: keys as "declared" or in "any" order; ``any_whitespace=False``: none between tokens;
        ``whitespace_pattern``: a regular expression for it; ``additional_properties=False``: objects have no
        properties but those that the schema names, unless it says so; ``default_dialect``: of schemas without
        ``$schema`` ("2020-12", "7", …).
        """
        from dotllm.languages.json_schema import json_schema_to_grammar

        return cls.from_grammar_object(json_schema_to_grammar(schema, **options), vocabulary)

    @classmethod
    def from_json_object(cls, vocabulary: Vocabulary, **options: Any) -> Index:
        """Any JSON object. Options: ``any_whitespace`` and ``whitespace_pattern``, as for JSON Schema."""
        from dotllm.languages.json_schema import json_object_to_grammar

        return cls.from_grammar_object(json_object_to_grammar(**options), vocabulary)

    @classmethod
    def from_grammar(cls, text: str, vocabulary: Vocabulary, dialect: Dialect = "auto", **options: Any) -> Index:
        """Texts of a context-free grammar in Lark or EBNF notation (docs/grammars.md), which "auto" tells apart by how
        rules are defined."""
        from dotllm.languages.cfg import grammar_to_grammar
        from dotllm.languages.token_names import TokenNames

        names = TokenNames(vocabulary.special_tokens, vocabulary.added_tokens)
        grammar = grammar_to_grammar(text, dialect=dialect, token_names=names, **options)
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_structural_tag(cls, spec: Any, vocabulary: Vocabulary, **options: Any) -> Index:
        """Texts of a structural tag (a dict or JSON text), in either request form (docs/structural-tags.md); options as
        for JSON Schema."""
        from dotllm.languages.json_schema import Options
        from dotllm.languages.structural_tag import structural_tag_to_grammar
        from dotllm.languages.token_names import TokenNames

        names = TokenNames(vocabulary.special_tokens, vocabulary.added_tokens)
        grammar = structural_tag_to_grammar(spec, token_names=names, options=Options(**options))
        return cls.from_grammar_object(grammar, vocabulary)

    # ---- use

    def guide(self) -> Guide:
        """A new sequence at the beginning."""
        from dotllm.index.guide import Guide

        if self.unique_nodes:
            from dotllm.index.unique import UniqueGuide

            return UniqueGuide(self)
        return Guide(self)

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
        """Call a kernel with fuel, growing the arena as it asks; raises BudgetExceeded."""
        while True:
            self.mem[layout.H_FUEL] = FUEL
            code = int(kernel(self.mem))
            if code >= -1:
                return code
            self.recover(code)

    def recover(self, code: int) -> None:
        """React to an error code of a kernel: make what it lacks, grow the arena, or raise the named error."""
        if code <= NEEDS_WORDS:
            self.space.add_words(NEEDS_WORDS - code)
            return
        if code == ROWS_FULL:
            raise self.space.full()
        self._set_memory(memory.recover(self.mem, code))

    @property
    def nearly_full(self) -> bool:
        """Whether new sequences had better use `renewed`: more than half of the arena's limit is taken."""
        return 2 * memory.used(self.mem) > int(self.mem[layout.H_LIMIT])

    def renewed(self) -> Index:
        """An index of the same automaton that has found nothing yet. Guides of this one are not affected."""
        with self.lock:
            mem = self.mem
        return Index(restart(mem), self.vocabulary, self.token_sets, self.charsets, self.unique_nodes)

    def advance(self, config: int, token: int) -> int:
        """The configuration after ``token``; -1: not allowed."""
        token, space = as_integer(token), self.space
        with self.lock:
            return self.run(
                lambda mem: advance(
                    mem, config, token, space.token_data, space.token_offset, space.ends, self.token_rows
                )
            )

    def advance_bytes(self, config: int, data: bytes) -> int:
        """The configuration after raw bytes; -1: not allowed."""
        array = np.frombuffer(bytearray(data), np.uint8)
        with self.lock:
            return self.run(lambda mem: advance_bytes(mem, config, array))

    def forced_bytes(self, config: int, limit: int = 4096) -> bytes:
        """The bytes that must come next, at most ``limit``."""
        out = np.empty(limit, np.uint8)
        with self.lock:
            n = self.run(lambda mem: forced_bytes(mem, config, out))
        return out[:n].tobytes()

    def can_finish(self, config: int) -> bool:
        """Whether the text may end at ``config``."""
        if config == FINISHED:
            return True
        mem = self.mem
        state = mem[mem[layout.R + 3 * layout.CONFIG] + 3 * config]
        return bool(mem[mem[layout.R + 3 * layout.STATE] + 8 * state + layout.S_FLAGS] & layout.ACCEPTS)

    def mask_row(self, config: int) -> int:
        """The row of the mask of ``config`` in `masks`, computed on the first visit."""
        if config == FINISHED:
            return END_ROW
        space = self.space
        with self.lock:
            row = self.run(lambda mem: known_row(mem, config))
            if row >= 0:
                return row
            entry = layout.R + 3 * layout.CONFIG
            mask = np.empty(space.words, np.int32)

            def find(mem: Int32) -> int:
                at = mem[entry] + 3 * config
                return int(
                    find_row(
                        mem, space.trie_byte, space.trie_depth, space.trie_end, space.trie_token_start,
                        space.trie_tokens, space.main_end, space.sets, space.set_rows, space.set_ints,
                        self.token_rows, space.eos,
                        mem[at], mem[at + 1], mask,
                    )
                )  # fmt: skip

            consulted = self.run(find)
            row = space.intern(mask)
            self.run(lambda mem: remember_row(mem, config, consulted, row))
            return row

    def row_places(self) -> list[Int32]:
        """Views of all places in the arena that hold row numbers (or a negative mark). Hold `lock`."""
        from dotllm.index.storage import row_places

        return row_places(self.mem)

    # ---- persistence

    def save(self, path: str | Path) -> None:
        """Write the index, with all it has found so far (see `index.storage`)."""
        from dotllm.index.storage import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, vocabulary: Vocabulary) -> Index:
        """Read what `save` wrote. Raises ValueError for a file that is damaged, newer, or of another vocabulary."""
        from dotllm.index.storage import load

        return load(Path(path), vocabulary)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        from dotllm.index.storage import dump

        return dump(self)

    @classmethod
    def from_bytes(cls, data: bytes, vocabulary: Vocabulary) -> Index:
        """The index that `to_bytes` was called of. Raises as `load`."""
        from dotllm.index.storage import load

        return load(data, vocabulary)
