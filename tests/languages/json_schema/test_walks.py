"""No dead ends: random walks under the mask on random schemas all finish, and `jsonschema` validates every text.

Byte by byte, so that each walk takes the machine through many states; ``make bench-walks`` does it with a real vocabulary on
real schemas.
"""

from __future__ import annotations

import json
from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from benchmarks.walks import parse, validator
from benchmarks.way_out import WayOut
from dotllm import Index
from dotllm.errors import SpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.languages.json_schema.random_schemas import random_schema
from tests.languages.json_schema.verdicts import byte_vocabulary

END = 256


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.booleans())
@example(627472, 1, False)  # a number whose fraction is lost in a float
@settings(max_examples=300, deadline=None)
def test_every_walk_ends_and_is_valid(seed: int, depth: int, any_order: bool) -> None:
    random = Random(seed)
    schema = random_schema(random, depth)
    try:
        Draft202012Validator.check_schema(schema)
        grammar = json_schema_to_grammar(schema, order="any" if any_order else "declared")
    except (SchemaError, RecursionError, SpecError):
        return
    index = Index.from_grammar_object(grammar, byte_vocabulary())
    way_out = WayOut(index)
    judge = validator(schema)
    for budget in (0, 3, 30, 120):
        text = walk(index, way_out, budget, random)
        value = parse(text.decode())  # must be JSON in any case
        assert repeats_a_key(text) or judge.is_valid(value), text


def repeats_a_key(text: bytes) -> bool:
    """An additional key may be written twice (docs/json-schema.md), and then means less than was written."""
    found = []

    def members(pairs: list[tuple[str, object]]) -> None:
        found.append(len(pairs) != len(dict(pairs)))

    json.loads(text, object_pairs_hook=members, parse_float=str)
    return any(found)


def walk(index: Index, way_out: WayOut, budget: int, random: Random) -> bytes:
    """Uniform over what the mask allows, for ``budget`` bytes; then the shortest way out."""
    guide, text = index.guide(), bytearray()
    for _ in range(budget):
        row = index.masks[guide.mask_row].view(np.uint8)
        allowed = np.flatnonzero(np.unpackbits(row, bitorder="little"))
        assert len(allowed), bytes(text)
        token = int(random.choice(allowed))
        assert guide.advance(token), bytes(text)
        if token == END:
            return bytes(text)
        text.append(token)
    while not guide.can_finish:
        for byte in way_out.bytes_from(guide.config):
            if not guide.advance(byte):  # the shortest way would repeat an item: another one, from here
                assert guide.is_stateful, bytes(text)
                byte = random.choice(list(guide.allowed_tokens()))
                assert guide.advance(byte), bytes(text)
                text.append(byte)
                break
            text.append(byte)
    return bytes(text)
