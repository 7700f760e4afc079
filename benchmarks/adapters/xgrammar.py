"""xgrammar: one compile thread, cache off, ``strict_mode=False`` (JSON Schema's own default: objects are open).

Its default ``strict_mode=True`` closes every object, which would reject valid documents wherever a schema leaves
``additionalProperties`` out; MaskBench turns it off as well.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xgrammar

from benchmarks.adapters.base import Bitmask, Options, Refused, Spec
from benchmarks.tokens import Tokens


class XgrammarMatcher:
    """A GrammarMatcher bound to one mask row."""

    def __init__(self, raw: xgrammar.GrammarMatcher, words: int) -> None:
        self.raw = raw
        rows: Bitmask = np.full((1, words), -1, np.int32)
        self.bits: Bitmask = rows[0]
        self.fill = partial(raw.fill_next_token_bitmask, rows, 0)
        self.advance = raw.accept_token


class XgrammarCompiled:
    """A CompiledGrammar."""

    def __init__(self, raw: xgrammar.CompiledGrammar, words: int) -> None:
        self.raw = raw
        self.words = words

    def matcher(self) -> XgrammarMatcher:
        """A new sequence at its start."""
        return XgrammarMatcher(xgrammar.GrammarMatcher(self.raw), self.words)

    def growth(self) -> dict[str, int]:
        """Bytes of the compiled grammar."""
        return {"bytes": self.raw.memory_size_bytes}


class XgrammarBatch:
    """Matchers on a BatchGrammarMatcher."""

    def __init__(self, matchers: Sequence[XgrammarMatcher], words: int, pool: xgrammar.BatchGrammarMatcher) -> None:
        self.bits: Bitmask = np.full((len(matchers), words), -1, np.int32)
        raw = [m.raw for m in matchers]
        self.fill = partial(pool.batch_fill_next_token_bitmask, raw, self.bits)
        self.fill_ids = None
        self.advance = partial(xgrammar.BatchGrammarMatcher.batch_accept_token, raw)


class Xgrammar:
    """The engine."""

    name = "xgrammar"
    version = importlib.metadata.version("xgrammar")

    def __init__(self, tokens: Tokens, options: Options) -> None:
        self.words = tokens.words
        vocabulary = [token or b"" for token in tokens.tokens]
        info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[tokens.eos])
        self.settings: dict[str, Any] = {
            "max_threads": 1,
            "cache_enabled": False,
            "strict_mode": False,
            "any_whitespace": not options.compact,
        }
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.json: dict[str, Any] = {"any_whitespace": not options.compact, "strict_mode": False}
        if options.compact:
            self.json["separators"] = (",", ":")
        self.pools: dict[int, xgrammar.BatchGrammarMatcher] = {}
        self.threads = options.threads

    def _compile(self, spec: Spec) -> xgrammar.CompiledGrammar:
        if spec.kind == "json_schema":
            return self.compiler.compile_json_schema(spec.spec, **self.json)
        if spec.kind == "json_object":
            return self.compiler.compile_json_schema({"type": "object"}, **self.json)
        if spec.kind == "regex":
            return self.compiler.compile_regex(spec.spec)
        if spec.kind == "choice":
            return self.compiler.compile_grammar("root ::= " + " | ".join(map(json.dumps, spec.spec)))
        return self.compiler.compile_grammar(spec.spec["ebnf"])

    def compile(self, spec: Spec) -> XgrammarCompiled:
        """Compile with one thread."""
        try:
            return XgrammarCompiled(self._compile(spec), self.words)
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error).strip().splitlines()[-1][:300]) from error

    def batch(self, matchers: Sequence[XgrammarMatcher], threads: int | None = None) -> XgrammarBatch:
        """Bind matchers to one buffer."""
        count = threads or self.threads
        if count not in self.pools:
            self.pools[count] = xgrammar.BatchGrammarMatcher(max_threads=count)
        return XgrammarBatch(matchers, self.words, self.pools[count])
