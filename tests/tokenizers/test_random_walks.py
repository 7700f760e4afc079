"""Random walks under masks, decoded by the tokenizer itself and judged by `json`, `jsonschema` and `re`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np

from dotllm import Index
from tests.tokenizers.real import Real

WALKS = 70
"""Walks per specification: 560 per tokenizer."""
MOST_TOKENS = 2000
WHITESPACE = r"[ \n\t]{0,3}"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "email": {"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.(?:com|org)$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
        "kind": {"enum": ["naïve", "日本", "plain", 1.5, None]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
LIST = {
    "type": "array", "minItems": 1, "maxItems": 4,
    "items": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": -500, "maximum": 500}, {"const": "    "}]},
}  # fmt: skip
WORDS = {
    "type": "object",
    "patternProperties": {"^[a-zé]{1,4}$": {"type": "null"}},
    "additionalProperties": False,
    "maxProperties": 3,
}
PATTERNS = {
    "not blank": r"[^\s]{1,10}",
    "blanks": r"(?:\t| {4}|\n){1,6}(?:return|pass)",
    "mixed": r"[а-яё]{1,8}[,.!]? (?:[0-9]{1,3}|\w{2})",
    "call": r"<tool_call>\{\"name\": \"(?:get|set)_[a-z]{1,6}\"\}</tool_call>",
    "anything": r"(?s:.){0,6}",
}


def _json(schema: Any) -> Callable[[str], None]:
    def judge(text: str) -> None:
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)

    return judge


def _re(pattern: str) -> Callable[[str], None]:
    def judge(text: str) -> None:
        assert re.fullmatch(pattern, text, re.ASCII), text  # \s and \w mean the same as in a request

    return judge


def walk(real: Real, index: Index, rng: random.Random) -> str:
    """The text of one walk, which stops at an end that the mask allows."""
    guide, ids = index.guide(), []
    ends = real.vocabulary.eos_token_ids
    while len(ids) < MOST_TOKENS:
        mask = np.unpackbits(index.masks[guide.mask_row].view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(mask)
        assert len(allowed), (real.said(ids), "no token is allowed")
        if guide.can_finish:
            assert mask[ends[0]]
            if rng.random() < 0.2 or len(allowed) == len(ends):
                assert guide.advance(ends[0]) and guide.is_finished
                return real.said(ids)
        allowed = allowed[~np.isin(allowed, ends)]
        token = int(allowed[rng.randrange(len(allowed))])
        assert guide.advance(token)
        ids.append(token)
    raise AssertionError(f"no end within {MOST_TOKENS} tokens: {real.said(ids)[:200]}")


def test_walks(real: Real) -> None:
    vocabulary, rng = real.vocabulary, random.Random(7)
    cases: dict[str, tuple[Index, Callable[[str], None]]] = {}
    for name, schema in {"person": PERSON, "list": LIST, "words": WORDS}.items():
        index = Index.from_json_schema(schema, vocabulary, whitespace_pattern=WHITESPACE)
        cases[name] = index, _json(schema)
    for name, pattern in PATTERNS.items():
        cases[name] = Index.from_regex(pattern, vocabulary), _re(pattern)
    faults = []
    for name, (index, judge) in cases.items():
        for _ in range(WALKS):
            text = walk(real, index, rng)
            try:
                judge(text)
            except (AssertionError, ValueError, jsonschema.ValidationError) as error:
                faults.append((name, text, str(error)[:100]))
    assert len(cases) * WALKS >= 500
    assert not faults, f"{len(faults)} faults, {faults[:3]}"
