"""Masks where most tokens lead into a loop (`automata.machine.wide_loop`: keys that must differ from some names),
against brute force on a small vocabulary whose tokens are made of pieces of the names."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from tests.cases import few
from tests.index.test_limits import allowed, ids

PIECES = [
    "n",
    "na",
    "name",
    "a",
    "e",
    "é",
    "ü",
    "日本",
    "😀",
    '"',
    '":',
    "\\",
    "\\n",
    "\\u00",
    "1f",
    " ",
    "x",
    "\n",
    "}",
    "1",
    "m",
    "Z",
]


def vocabulary(size: int) -> Vocabulary:
    """Tokens made of pieces of names, and single bytes: all bytes, or only those of the pieces if ``size`` is small."""
    random = Random(5)
    letters = range(256) if size > 256 else b"".join(map(str.encode, [*PIECES, "{", ",", "truefalsn"]))
    tokens = {bytes([byte]) for byte in letters}
    while len(tokens) < size:
        token = "".join(random.choice(PIECES) for _ in range(random.randint(1, 4))).encode()
        cut = random.randint(0, 2) if random.random() < 0.3 else 0  # half a character at an end
        tokens.add(token[cut:] or token)
    return Vocabulary.from_bytes([*sorted(tokens), None], eos_token_ids=len(tokens))


STRING = {"type": "string"}
SCHEMAS: list[object] = [
    {"type": "object", "properties": {"name": STRING, "na": STRING, "names": STRING, "é": STRING, "Z x": STRING}},
    {"type": "object", "properties": {name: {} for name in ("n", "a", "e", "m", "x", "Z")}},
    {"type": "object", "properties": {"日本": {}, "日x": {}, "naé": {}}},
    {"type": "object", "properties": {"": {}, '"': {}, "\\": {}, "n\n": {}}},
    {"type": "object", "properties": {"name": {}}, "patternProperties": {"^x": {"type": "integer"}, "é$": STRING}},
    {"type": "object", "propertyNames": {"not": {"enum": ["name", "né"]}}, "properties": {"nam": {}}},
    {"type": "object", "propertyNames": {"maxLength": 3}, "properties": {"na": {}}},
    {"not": {"enum": ["name", "na", ""]}, "type": "string"},
    {"type": "string", "pattern": "^[^n].*$"},
    {"type": "string", "pattern": '^[^\\n"a][^"]*x?$'},
    {
        "type": "object",
        "properties": {"na": {"type": "object", "properties": {"na": {}}}},
        "additionalProperties": STRING,
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=[str(schema)[:50] for schema in SCHEMAS])
@pytest.mark.parametrize("size", [900, 90])  # (90: for kernels that run as Python)
def test_masks_by_brute_force(schema: object, size: int) -> None:
    words = vocabulary(size)
    index, judge = Index.from_json_schema(schema, words), Index.from_json_schema(schema, words)
    random = Random(str(schema))
    row = np.zeros((1, words.words), np.int32)
    for _ in range(few(6)):
        guide, other = index.guide(), judge.guide()
        for _ in range(12):
            guide.write_mask(row, 0)
            found = np.flatnonzero(np.unpackbits(row[0].view(np.uint8), bitorder="little")[: words.size]).tolist()
            expected = [token for token in range(words.size) if other.accepts([token])]
            assert found == expected
            token = random.choice(expected)
            assert guide.advance(token) and other.advance(token)
            if guide.is_finished:
                break


@pytest.mark.parametrize("schema", SCHEMAS, ids=[str(schema)[:50] for schema in SCHEMAS])
def test_masks_under_limits(schema: object) -> None:
    """A token is allowed if the text can end in time after it."""
    index, random = Index.from_json_schema(schema, vocabulary(90)), Random(str(schema))
    for more in (0, 6, 15):
        guide = index.guide()
        left = guide.tokens_to_finish + more
        while not guide.is_finished:
            ordinary = ids(index.masks[guide.mask_row])
            fitting = [t for t in ordinary if index.tokens_to_finish(index.advance(guide.config, t)) < left]
            assert allowed(guide, left) == fitting != []
            assert guide.advance(random.choice(fitting))
            left -= 1
