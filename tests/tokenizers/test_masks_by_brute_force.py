"""Masks in many states, compared with every token of the vocabulary, tried one by one.

The oracle is `regex` with ``partial=True`` on bytes: can the text so far, followed by this token, still become a match?
The oracle gets full patterns over bytes; the engine gets a regular expression or a JSON Schema of the same language.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from dotllm import Index
from tests.tokenizers.real import Real

regex = pytest.importorskip("regex")

STATES = 220
"""States per tokenizer."""
_TAIL = rb"[\x80-\xbf]"
WIDE = (
    rb"(?:[\xc2-\xdf]T|\xe0[\xa0-\xbf]T|[\xe1-\xec\xee\xef]TT|\xed[\x80-\x9f]T|\xf0[\x90-\xbf]TT|[\xf1-\xf3]TTT"
    rb"|\xf4[\x80-\x8f]TT)"
).replace(b"T", _TAIL)
"""A non-ASCII character in UTF-8 (RFC 3629)."""


class Case(NamedTuple):
    """A language twice: for the engine, and as a pattern over bytes."""

    make: Callable[[Any], Index]
    pattern: bytes


def _regex(ours: str, over_bytes: bytes) -> Case:
    return Case(lambda vocabulary: Index.from_regex(ours, vocabulary), over_bytes)


def _schema(schema: Any, over_bytes: bytes) -> Case:
    """A schema with at most two characters of white space everywhere; ``W`` in the pattern stands for them."""
    return Case(
        lambda vocabulary: Index.from_json_schema(schema, vocabulary, whitespace_pattern=r"[ \n\t]{0,2}"),
        over_bytes.replace(b"W", rb"[ \n\t]{0,2}"),
    )


def _closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


CASES = {
    "not blank": _regex(r"[^\s]{1,10}", rb"(?:[^ \t\n\r\f\v\x80-\xff]|" + WIDE + rb"){1,10}"),
    "words": _regex(r"[a-z]+(?: [a-z]+)*\.", rb"[a-z]+(?: [a-z]+)*\."),
    "blanks": _regex(r"(?:[ ]{4}|\t|\n)+x", rb"(?:[ ]{4}|\t|\n)+x"),
    "date": _regex(r"[0-9]{4}-(?:0[1-9]|1[0-2])-[0-3][0-9]", rb"[0-9]{4}-(?:0[1-9]|1[0-2])-[0-3][0-9]"),
    "string": _regex(
        r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"', rb'"(?:[^"\\\x00-\x1f\x80-\xff]|' + WIDE + rb'|\\["\\/bfnrt])*"'
    ),
    "letters of two alphabets": _regex(r"[a-cé-ü]+!", rb"(?:[a-c]|\xc3[\xa9-\xbc])+!"),
    "tags": _regex(r"<[a-z_]{1,12}>[^<]*</[a-z_]{1,12}>", rb"<[a-z_]{1,12}>(?:[^<\x80-\xff]|" + WIDE + rb")*</[a-z_]{1,12}>"),
    "object": _schema(
        _closed(id={"type": "integer"}, ok={"type": "boolean"}),
        rb'\{W"id"W:W-?(?:0|[1-9][0-9]*)W,W"ok"W:W(?:true|false)W\}',
    ),
    "array": _schema(
        {"type": "array", "items": {"enum": [True, None, False]}, "minItems": 1, "maxItems": 3},
        rb"\[W(?:true|null|false)(?:W,W(?:true|null|false)){0,2}W\]",
    ),
}  # fmt: skip


PERMISSIVE = {"not blank", "string", "tags"}
"""Most of their states allow nearly every token, and each must be tried: that takes seconds per state."""


class Oracle:
    """The tokens that may follow a text of a pattern."""

    def __init__(self, real: Real) -> None:
        by_bytes: dict[bytes, list[int]] = {}
        for i in range(real.vocabulary.size):
            if real.token(i):
                by_bytes.setdefault(real.token(i), []).append(i)
        self.ids = by_bytes
        self.texts = sorted(by_bytes)

    def allowed(self, pattern: Any, said: bytes) -> Iterator[int]:
        """Yield tokens in byte order. If a prefix of a token cannot follow, all tokens with that prefix are skipped."""
        at = 0
        while at < len(self.texts):
            text = self.texts[at]
            if pattern.fullmatch(said + text, partial=True):
                yield from self.ids[text]
                at += 1
                continue
            length = next(n for n in range(1, len(text) + 1) if not pattern.fullmatch(said + text[:n], partial=True))
            beyond = text[:length].rstrip(b"\xff")
            if not beyond:
                return
            at = bisect_left(self.texts, beyond[:-1] + bytes([beyond[-1] + 1]), at + 1)


def test_masks(real: Real) -> None:
    oracle, rng = Oracle(real), random.Random(22)
    vocabulary, seen = real.vocabulary, 0
    compiled = {name: (case.make(vocabulary), regex.compile(case.pattern)) for name, case in CASES.items()}
    visited: set[tuple[str, bytes]] = set()
    drawn = [name for name in CASES for _ in range(1 if name in PERMISSIVE else 4)]
    for _ in range(40 * STATES):
        name = rng.choice(drawn)
        index, pattern = compiled[name]
        guide, said = index.guide(), b""
        for _ in range(rng.randrange(12)):
            choices = [i for i in guide.allowed_tokens() if i not in vocabulary.eos_token_ids]
            if not choices:
                break
            # Short tokens are as likely as long ones, so that walks stop inside characters and words.
            short = [i for i in choices if len(real.token(i)) < 3]
            token = rng.choice(short if short and rng.random() < 0.5 else choices)
            assert guide.advance(token)
            said += real.token(token)
        if (name, said) in visited:
            continue
        visited.add((name, said))
        mask = np.unpackbits(index.masks[guide.mask_row].view(np.uint8), bitorder="little")[: vocabulary.size]
        ends = set(vocabulary.eos_token_ids) if pattern.fullmatch(said) else set()
        expected = ends.union(oracle.allowed(pattern, said))
        found = set(np.flatnonzero(mask).tolist())
        different = found ^ expected
        assert not different, (name, said, [(i, real.token(i), i in found) for i in sorted(different)[:5]])
        seen += 1
        if seen == STATES:
            return
    raise AssertionError(f"only {seen} states")
