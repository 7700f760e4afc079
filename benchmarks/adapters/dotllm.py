"""dotllm through its public API. The server uses ``fill_ids`` (row ids); ``fill`` copies bits, as peers do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import dotllm
from benchmarks.adapters.base import Bitmask, Options, Refused, Spec
from benchmarks.tokens import Tokens
from dotllm import Guide, Index, Vocabulary
from dotllm.compilation.compiler import prepare
from dotllm.errors import SpecError
from dotllm.index.batch import advance_guides, fill_masks, mask_rows


class DotllmMatcher:
    """A Guide bound to one mask row."""

    def __init__(self, guide: Guide, words: int) -> None:
        self.raw = guide
        rows: Bitmask = np.zeros((1, words), np.int32)
        self.bits: Bitmask = rows[0]
        self.fill = partial(guide.write_mask, rows, 0)
        self.advance = guide.advance


class DotllmCompiled:
    """An Index."""

    def __init__(self, index: Index, words: int) -> None:
        self.index = index
        self.words = words

    def matcher(self) -> DotllmMatcher:
        """A new sequence at its start."""
        return DotllmMatcher(self.index.guide(), self.words)

    def growth(self) -> dict[str, int]:
        """Sizes of the index, and the rows in its vocabulary's table."""
        index = self.index
        return {
            "states": index.states,
            "configurations": index.configurations,
            "bytes": index.nbytes,
            "rows": int(index.space.rows_used[0]),
        }


class DotllmBatch:
    """Guides in one call."""

    def __init__(self, matchers: Sequence[DotllmMatcher], words: int, threads: int) -> None:
        guides = [m.raw for m in matchers]
        self.bits: Bitmask = np.zeros((len(guides), words), np.int32)
        self.fill = partial(fill_masks, guides, self.bits, threads=threads)
        self.fill_ids = partial(mask_rows, guides, threads=threads)
        self.advance = partial(advance_guides, guides)


class Dotllm:
    """The engine."""

    name = "dotllm"
    version = dotllm.__version__

    def __init__(self, tokens: Tokens, options: Options) -> None:
        self.words = tokens.words
        self.vocabulary = Vocabulary.from_bytes(tokens.tokens, eos_token_ids=[tokens.eos])
        self.vocabulary.prepare()  # as a server does when it starts
        prepare()
        self.threads = options.threads
        self.json: dict[str, Any] = {"any_whitespace": False} if options.compact else {}
        # Objects are open, as in the standard and as the peers are told to write them.
        self.settings: dict[str, Any] = {**(self.json or {"whitespace": "default"}), "additional_properties": "open"}

    def _index(self, spec: Spec) -> Index:
        if spec.kind == "json_schema":
            return Index.from_json_schema(spec.spec, self.vocabulary, additional_properties="open", **self.json)
        if spec.kind == "json_object":
            return Index.from_json_object(self.vocabulary, **self.json)
        if spec.kind == "regex":
            return Index.from_regex(spec.spec, self.vocabulary)
        if spec.kind == "choice":
            return Index.from_choice(spec.spec, self.vocabulary)
        return Index.from_grammar(spec.spec["lark"], self.vocabulary, dialect="lark")

    def compile(self, spec: Spec) -> DotllmCompiled:
        """A new Index, nothing cached."""
        try:
            return DotllmCompiled(self._index(spec), self.words)
        except SpecError as error:
            raise Refused(str(error)[:300], error.keyword or type(error).__name__) from error

    def batch(self, matchers: Sequence[DotllmMatcher], threads: int | None = None) -> DotllmBatch:
        """Bind guides to one buffer."""
        return DotllmBatch(matchers, self.words, threads or self.threads)


class DotllmAnyOrder(Dotllm):
    """The same with the keys of objects in any order, not only as declared. (A model without masks wrote MaskBench's
    documents: one schema in forty has a document whose keys are in another order.)"""

    name = "dotllm-any-order"

    def __init__(self, tokens: Tokens, options: Options) -> None:
        super().__init__(tokens, options)
        self.json["property_order"] = "any"
