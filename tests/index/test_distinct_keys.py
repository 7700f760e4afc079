"""Objects whose unnamed keys are counted, or one of whose values must fit a schema: guides remember the keys."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dotllm import Index, SpecError, Vocabulary
from tests.cases import few
from tests.index.test_unique import taken

WORDS = [
    b'{"', b'":', b'",', b'","', b'"a"', b'"a":1', b',"a"', b',"a":', b'1,"a":', b'{"a":1,', b'"a":1,"a":1', b'":1,"', b'a":',
    b'b"', b"ab", b"cc", b'"}', b"1}", b"},", b'":{"', b'{"a":{"a"', b"\n  ", b', "', b"\\u00",
]  # fmt: skip
EOS = 256 + len(WORDS)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """Every byte, and tokens that contain ends of keys or whole members."""
    return Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), *WORDS, None], eos_token_ids=[EOS])


TWO = {"type": "object", "minProperties": 2}
SCHEMAS: list[dict[str, Any]] = [
    TWO,
    {"type": "object", "minProperties": 3, "maxProperties": 4, "additionalProperties": {"type": ["integer", "null"]}},
    {"type": "object", "minProperties": 2, "patternProperties": {"^(ab|c.*)$": {"enum": [1, 2]}}, "additionalProperties": False},
    {"type": "object", "minProperties": 2, "patternProperties": {"^[ab]$": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "minProperties": 3, "properties": {"a": {"const": 1}}, "additionalProperties": {"const": 2}},
    {"type": "object", "not": {"maxProperties": 1}, "additionalProperties": {"type": "integer"}},
    {"type": "object", "not": {"additionalProperties": {"type": "integer"}}, "additionalProperties": {"type": ["integer", "null"]}},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "object", "minProperties": 2, "additionalProperties": {"const": 1}}},
    {"type": "array", "items": {**TWO, "additionalProperties": {"enum": [1, 2]}}, "uniqueItems": True, "maxItems": 3},
    {"anyOf": [{**TWO, "additionalProperties": {"type": "integer"}}, {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}]},
]  # fmt: skip


def repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_walks_end_and_are_valid(schema: dict[str, Any], order: Any, vocabulary: Vocabulary) -> None:
    """Masks are what `Guide.advance` allows, no walk gets stuck, and finished texts are valid to a JSON reader."""
    index = Index.from_json_schema(schema, vocabulary, property_order=order, any_whitespace=False)
    judge = Draft202012Validator(schema)
    ends = b'"}],:'
    several = 0
    for seed in range(few(25)):
        random, guide, text = Random(seed), index.guide(), b""
        for step in range(1500):
            allowed = list(guide.allowed_tokens())
            assert allowed, text
            for some in [*random.sample(range(256, EOS + 1), 4), ord('"'), random.randrange(256)]:
                assert guide.fork().advance(some) == (some in allowed), (text, some)
            liked = [t for t in allowed if t == EOS or (t < 256 and t in (ends[:3] if step > 150 else ends))]
            near = [t for t in allowed if t >= 256 or t in b'"abc1n']
            token = random.choice(liked if liked and random.random() < 0.4 else near or allowed)
            assert guide.advance(token), text
            if guide.is_finished:
                break
            text += vocabulary.token_bytes(token) or b""
        assert guide.is_finished, text
        document = json.loads(text)
        assert judge.is_valid(document), text
        several += len(document) > 1
    assert several


KEYS = st.sampled_from(["a", "b", "ab", "c", "cc", "", "é", "\n", '"', "x\\"])


@settings(max_examples=few(200))
@given(st.lists(KEYS, max_size=4), st.booleans())
def test_verdicts(keys: list[str], compact: bool) -> None:
    """``{"minProperties": 2}`` accepts an object if its keys differ and there are at least two."""
    text = "{" + ("," if compact else ", ").join(f"{json.dumps(key, ensure_ascii=False)}:1" for key in keys) + "}"
    guide = two().guide()
    accepted = all(guide.advance(byte) for byte in text.encode()) and guide.can_finish
    assert accepted == (len({*keys}) == len(keys) >= 2)


_indexes: list[Index] = []


def two() -> Index:
    if not _indexes:
        bytes_only = Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), None], eos_token_ids=[256])
        _indexes.append(Index.from_json_schema(TWO, bytes_only))
    return _indexes[0]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (TWO, ['{"a":1,"b":1}', '{"a": {"a": 1, "a": 2}, "b": 1}'], ['{"a":1}', '{"a":1,"a":1}', '{"a":1,"\\u0061":1}']),
        (SCHEMAS[2], ['{"ab":1,"c":1}', '{"c":1,"cc":1}'], ['{"ab":1,"ab":2}', '{"ab":1}']),
        (SCHEMAS[3], ['{"a":1,"b":1}', '{"b":1,"a":1}'], ['{"a":1,"a":1}', '{"a":1}', '{"a":1,"c":1}']),
        (SCHEMAS[4], ['{"a":1,"b":2,"c":2}', '{"b":2,"c":2,"d":2}'], ['{"a":1,"b":2,"b":2}', '{"a":1,"b":2}']),
        (SCHEMAS[5], ['{"a":1,"b":1}'], ['{"a":1,"a":1}', "{}"]),
        (SCHEMAS[6], ['{"a":1,"b":null}', '{"a":null,"b":1}'], ['{"a":null,"a":1}', '{"a":1}']),
        (SCHEMAS[9], ['{"a":null,"b":1,"b":2}', '{"a":1,"b":1}', '{"a":null}'], ['{"a":1,"b":1,"b":2}', '{"b":1}']),
        # named keys never come twice, so nothing is remembered
        ({"properties": {"a": {}, "b": {}, "c": {}}, "type": "object", "required": ["a"], "minProperties": 2}, ['{"a":1,"x":1}', '{"a":1,"x":1,"x":1}'], ['{"a":1}']),
    ],
)  # fmt: skip
def test_texts(schema: dict[str, Any], valid: list[str], invalid: list[str], vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(schema, vocabulary, additional_properties="open")
    for text in valid:
        guide = index.guide()
        assert taken(guide, text) and guide.can_finish, text
    for text in invalid:
        guide = index.guide()
        assert not (taken(guide, text) and guide.can_finish), text


def test_what_few_keys_cannot_reach_is_refused(vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "patternProperties": {"^x$": {}}, "minProperties": 2, "additionalProperties": False}
    with pytest.raises(SpecError, match="nothing satisfies"):
        Index.from_json_schema(schema, vocabulary)


def test_only_where_it_matters(vocabulary: Vocabulary) -> None:
    """Guides that remember keys cost more, and the GPU does not follow them."""
    for schema in (
        {"type": "object", "minProperties": 1},
        {"type": "object", "maxProperties": 3},
        {"type": "object", "required": ["a", "b"], "minProperties": 3},
        {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "minProperties": 2},
    ):
        assert not Index.from_json_schema(schema, vocabulary).unique_nodes, schema
    assert Index.from_json_schema(TWO, vocabulary).unique_nodes


def test_going_back(vocabulary: Vocabulary) -> None:
    guide = Index.from_json_schema(TWO, vocabulary).guide()
    assert taken(guide, '{"a":1,"a') and not guide.advance(ord('"'))
    guide.rollback(1)
    assert taken(guide, 'b":1') and guide.advance(ord("}")) and guide.can_finish


@pytest.mark.parametrize(
    "make",
    [
        lambda v: Index.from_structural_tag({"format": {"type": "json_schema", "json_schema": TWO, "style": "qwen_xml"}}, v),
        lambda v: Index.from_structural_tag({"format": {"type": "json_schema", "json_schema": TWO, "style": "cohere_xml"}}, v),
    ],
)  # fmt: skip
def test_refused_by_name(make: Any, vocabulary: Vocabulary) -> None:
    with pytest.raises(SpecError) as refusal:
        make(vocabulary)
    assert refusal.value.keyword == "minProperties"
