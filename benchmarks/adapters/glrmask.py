"""GLRMask with its default mask strategy: it compiles a grammar for the vocabulary, slowly, to get fast masks.

It has no end token: its guide says to append a set of the tokens that end an answer to the grammar. It reads no
regular expressions or choices; this adapter writes both as Lark.

Source: https://github.com/IsaacBreen/glrmask (GUIDE.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import glrmask
import numpy as np

from benchmarks.adapters.base import Bitmask, Options, Refused, Spec
from benchmarks.tokens import Tokens


class GlrmaskMatcher:
    """A state bound to one mask row."""

    def __init__(self, raw: glrmask.ConstraintState, words: int) -> None:
        self.raw = raw
        self.bits: Bitmask = np.zeros(words, np.int32)
        self.fill = partial(raw.fill_mask, self.bits)
        self.advance = raw.commit_token


class GlrmaskCompiled:
    """A constraint."""

    def __init__(self, constraint: glrmask.Constraint, words: int) -> None:
        self.constraint = constraint
        self.words = max(words, constraint.mask_len())

    def matcher(self) -> GlrmaskMatcher:
        """A new sequence at its start."""
        return GlrmaskMatcher(self.constraint.start(), self.words)

    def growth(self) -> dict[str, int]:
        """GLRMask reports no sizes."""
        return {}


class GlrmaskBatch:
    """States one after another: GLRMask has no batch call."""

    def __init__(self, matchers: Sequence[GlrmaskMatcher]) -> None:
        self.matchers = matchers
        self.bits: Bitmask = np.zeros((len(matchers), len(matchers[0].bits)), np.int32)
        self.fill_ids = None

    def fill(self) -> None:
        """All masks."""
        for matcher, row in zip(self.matchers, self.bits, strict=True):
            matcher.raw.fill_mask(row)

    def advance(self, ids: Sequence[int]) -> None:
        """One token for each sequence."""
        for matcher, token in zip(self.matchers, ids, strict=True):
            matcher.raw.commit_token(token)


class Glrmask:
    """The engine."""

    name = "glrmask"
    version = glrmask.__version__

    def __init__(self, tokens: Tokens, options: Options) -> None:
        if options.compact:
            raise ValueError("GLRMask has no option for compact JSON")
        self.words = tokens.words
        self.settings: dict[str, Any] = {"mask_strategy": "AUTO"}
        pairs = {i: token for i, token in enumerate(tokens.tokens) if token is not None}
        self.vocabulary = glrmask.Vocab.from_id_to_bytes(pairs)
        self.end = glrmask.TokenSet([tokens.eos])

    def _grammar(self, spec: Spec) -> glrmask.Grammar:
        if spec.kind == "json_schema":
            return glrmask.Grammar.from_json_schema(spec.spec)
        if spec.kind == "json_object":
            return glrmask.Grammar.from_json_schema({"type": "object"})
        if spec.kind == "regex":
            return glrmask.Grammar.from_lark(f"start: /{spec.spec.replace('/', chr(92) + '/')}/")
        if spec.kind == "choice":
            return glrmask.Grammar.from_lark("start: " + " | ".join(map(json.dumps, spec.spec)))
        return glrmask.Grammar.from_lark(spec.spec["lark"])

    def compile(self, spec: Spec) -> GlrmaskCompiled:
        """Read the grammar, add the end token, compile both for the vocabulary."""
        try:
            whole = glrmask.Expr.sequence(self._grammar(spec), self.end)
            constraint = glrmask.Grammar.from_expr(whole).compile(self.vocabulary)
        except ValueError as error:
            raise Refused(str(error)[:300]) from error
        return GlrmaskCompiled(constraint, self.words)

    def batch(self, matchers: Sequence[GlrmaskMatcher], threads: int | None = None) -> GlrmaskBatch:
        """Bind matchers to one buffer."""
        return GlrmaskBatch(matchers)
