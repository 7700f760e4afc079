"""llguidance, set up as by its authors for MaskBench: JSON slices, flexible white space, default parser limits.

Where text is forced, it allows only the canonical token; all other masks are comparable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import llguidance
import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer

from benchmarks.adapters.base import Bitmask, Options, Refused, Spec
from benchmarks.tokens import Tokens


def _writing_to(bits: Bitmask, call: Any, *arguments: Any) -> Any:
    """A call that writes to the address of ``bits``, and therefore keeps ``bits`` alive."""
    bound = partial(call, *arguments)
    bound.keeps_alive = bits  # type: ignore[attr-defined]
    return bound


class LlguidanceMatcher:
    """An LLMatcher bound to one mask row."""

    def __init__(self, raw: LLMatcher, words: int) -> None:
        self.raw = raw
        self.bits: Bitmask = np.zeros(words, np.int32)
        self.fill = _writing_to(self.bits, raw.unsafe_compute_mask_ptr, self.bits.ctypes.data, self.bits.nbytes)
        self.advance = raw.consume_token


class LlguidanceCompiled:
    """A grammar, compiled once. A new sequence is a deep copy, the cheapest way; it shares the lexer."""

    def __init__(self, first: LLMatcher, words: int) -> None:
        self.first = first
        self.words = words

    def matcher(self) -> LlguidanceMatcher:
        """A new sequence at its start."""
        return LlguidanceMatcher(self.first.deep_copy(), self.words)

    def growth(self) -> dict[str, int]:
        """llguidance reports no sizes."""
        return {}


class LlguidanceBatch:
    """Matchers on an LLExecutor."""

    def __init__(self, matchers: Sequence[LlguidanceMatcher], words: int, executor: LLExecutor) -> None:
        self.bits: Bitmask = np.zeros((len(matchers), words), np.int32)
        raw = [m.raw for m in matchers]
        rows = [(m, i) for i, m in enumerate(raw)]
        call = executor.unsafe_compute_mask_ptr
        self.fill = _writing_to(self.bits, call, rows, self.bits.ctypes.data, words * 4, len(raw))
        self.fill_ids = None
        self.advance = lambda ids: executor.consume_token_par(list(zip(raw, ids, strict=True)))


class Llguidance:
    """The engine."""

    name = "llguidance"
    version = llguidance.__version__

    def __init__(self, tokens: Tokens, options: Options) -> None:
        self.words = tokens.words
        slices = LLTokenizer.json_slices()
        self.settings: dict[str, Any] = {"slices": "json_slices", "whitespace_flexible": not options.compact}
        self.tokenizer = LLTokenizer(tokens.source, n_vocab=len(tokens.tokens), eos_token=tokens.eos, slices=slices)
        self.overrides: Any = {"whitespace_flexible": not options.compact}
        self.executors: dict[int, LLExecutor] = {}
        self.threads = options.threads

    def _grammar(self, spec: Spec) -> str:
        if spec.kind == "json_schema":
            return LLMatcher.grammar_from_json_schema(spec.spec, overrides=self.overrides)
        if spec.kind == "json_object":
            return LLMatcher.grammar_from_json_schema({"type": "object"}, overrides=self.overrides)
        if spec.kind == "regex":
            return LLMatcher.grammar_from_regex(spec.spec)
        if spec.kind == "choice":
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, spec.spec)))
        return LLMatcher.grammar_from_lark(spec.spec["lark"])

    def compile(self, spec: Spec) -> LlguidanceCompiled:
        """Build the grammar text and the matcher."""
        try:
            first = LLMatcher(self.tokenizer, self._grammar(spec), log_level=0)
        except ValueError as error:
            raise Refused(str(error)) from error
        if first.is_error():
            raise Refused(first.get_error().splitlines()[0][:300])
        return LlguidanceCompiled(first, self.words)

    def batch(self, matchers: Sequence[LlguidanceMatcher], threads: int | None = None) -> LlguidanceBatch:
        """Bind matchers to one buffer."""
        count = threads or self.threads
        if count not in self.executors:
            self.executors[count] = LLExecutor(num_threads=count)
        return LlguidanceBatch(matchers, self.words, self.executors[count])
