"""No dead ends: random walks under the mask on random schemas all finish, and `jsonschema` validates every text.

Tokens are bytes, so each walk takes the machine through many states; ``make bench-walks`` does the same with a real
vocabulary on real schemas.
"""

from __future__ import annotations

import json
import re
from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from benchmarks.walks import parse, validator
from dotllm import Guide, Index
from dotllm.errors import BudgetExceededError, SpecError, UnsupportedError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.cases import few
from tests.languages.json_schema.random_schemas import random_schema
from tests.languages.json_schema.verdicts import byte_vocabulary

END = 256
MOST_STEPS = 2000
FAR = re.compile(rb"[0-9][eE][-+]?[0-9]{3}")  # numbers beyond a double, which the judge may read as equal


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.booleans())
@example(627472, 1, False)  # a number whose fraction is lost in a float
@example(1184836388, 2, True)  # an array of distinct objects without a limit
@example(7009895, 2, False)  # a limit after a loop that no further character may follow
@settings(max_examples=few(300))
def test_every_walk_ends_and_is_valid(seed: int, depth: int, any_order: bool) -> None:
    random = Random(seed)
    schema = random_schema(random, depth)
    try:
        Draft202012Validator.check_schema(schema)
        grammar = json_schema_to_grammar(schema, order="any" if any_order else "declared")
        index = Index.from_grammar_object(grammar, byte_vocabulary())
    except (SchemaError, RecursionError, SpecError, BudgetExceededError):
        return
    judge = validator(schema)
    for more in (0, 3, 30, 120):
        text = walk(index, more, random)
        if text is None:
            continue
        value = parse(text.decode())  # must be JSON in any case
        assert repeats_a_key(text) or FAR.search(text) or judge.is_valid(value), text


def repeats_a_key(text: bytes) -> bool:
    """Whether a key is repeated. Additional keys may be (docs/json-schema.md); readers then keep only one value."""
    found = []

    def members(pairs: list[tuple[str, object]]) -> None:
        found.append(len(pairs) != len(dict(pairs)))

    json.loads(text, object_pairs_hook=members, parse_float=str)
    return any(found)


def walk(index: Index, more: int, random: Random) -> bytes | None:
    """A walk uniform over the mask, limited to the least bytes and ``more``; None if it found no end."""
    guide, text = index.guide(), bytearray()
    try:
        least = guide.tokens_to_finish
    except UnsupportedError:
        return walk_without_limit(guide, more, random)
    for left in range(least + more, 0, -1):
        mask = guide.mask_within(left)
        tokens = list(guide.allowed_tokens()) if mask is None else tokens_in(mask)
        assert tokens, bytes(text)
        token = random.choice(tokens)
        assert guide.advance(token), bytes(text)
        if token == END:
            return bytes(text)
        text.append(token)
    raise AssertionError(bytes(text))


def tokens_in(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def walk_without_limit(guide: Guide, budget: int, random: Random) -> bytes | None:
    """The same for ``budget`` bytes, and then the shortest way to the end unless it repeats something. (Arrays that
    need several distinct items, and objects that need several keys, have no limit. All short ways to the end of such a
    text may repeat one; then the walk goes on.)"""
    index, text = guide.index, bytearray()
    for step in range(MOST_STEPS):
        if step >= budget and guide.can_finish:
            return bytes(text)
        token = random.choice(list(guide.allowed_tokens()))
        if step >= budget:
            mask = index.mask_within(guide.config, index.tokens_to_finish(guide.config))
            near = tokens_in(index.masks[index.mask_row(guide.config)] if mask is None else mask)
            token = near[0] if guide.accepts(near[:1]) else token
        assert guide.advance(token), bytes(text)
        if token == END:
            return bytes(text)
        text.append(token)
    return None
