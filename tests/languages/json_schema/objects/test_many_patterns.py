"""Objects with many patterns of keys: one automaton classifies their keys, in time that grows with the patterns."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import jsonschema
import pytest

from dotllm import Index, SpecError
from dotllm.automata.dfa import Classes
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.objects import unnamed_keys
from dotllm.languages.json_schema.strings import string_language
from dotllm.languages.regex import regex_to_dfa
from tests.cases import few
from tests.effort import at_most

Schema = dict[str, Any]
PATTERNS = [
    "^a",
    "b$",
    "^ab*$",
    "c",
    "^(a|b)*$",
    "",
    "^$",
    "[^a]b",
    "^.$",
    "é",
    "a.c",
    "^b?a",
    "x^",
    "^k1",
    "^k12",
    "cc",
]
NAMES = ["", "a", "b", "c", "ab", "ba", "aa", "abc", "cc", "acc", "k1", "k12", "k3", "zz", "bbb", "é"]
VALUES: list[Any] = [1, 5, "x", "y", None]
NODES: list[Any] = [
    {"type": "integer"}, {"type": ["integer", "string"]}, {"enum": [1, "x", None]}, True, {"maximum": 3}, {"const": 1},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(few(30)))
def test_classes_are_those_of_re(seed: int) -> None:
    draw = random.Random(seed)
    patterns = [draw.choice(PATTERNS) for _ in range(draw.randint(1, 9))]
    together = Classes([regex_to_dfa(pattern, search=True, dialect="ecma") for pattern in patterns], "patterns")
    parts = together.parts(lambda members: members)
    for length in range(4):
        for text in map("".join, itertools.product("abcé", repeat=length)):
            members = frozenset(i for i, pattern in enumerate(patterns) if re.search(pattern, text))
            assert together.of(text) == members
            assert [name for name, dfa in parts.items() if dfa.accepts(text)] == [members]
    assert not any(dfa.is_empty() for dfa in parts.values())


def random_object(draw: random.Random) -> Schema:
    patterns = draw.sample(PATTERNS, draw.randint(2, len(PATTERNS)))
    schema: Schema = {"type": "object", "patternProperties": {pattern: draw.choice(NODES) for pattern in patterns}}
    for keyword, share, make in (
        ("additionalProperties", 0.4, lambda: draw.choice([*NODES, False])),
        ("properties", 0.4, lambda: {name: draw.choice(NODES) for name in draw.sample(NAMES, draw.randint(1, 3))}),
        ("propertyNames", 0.2, lambda: draw.choice([{"minLength": 1}, {"pattern": "^[ak]"}, {"enum": ["a", "k1"]}])),
        ("required", 0.2, lambda: [draw.choice(NAMES)]),
        ("maxProperties", 0.2, lambda: draw.randint(1, 2)),
    ):
        if draw.random() < share:
            schema[keyword] = make()
    return schema


def random_schema(draw: random.Random) -> Schema:
    first, second = random_object(draw), random_object(draw)
    return draw.choice([
        first, first, {"type": "object", "allOf": [first, second]}, {"type": "object", "not": first},
        {"anyOf": [first, second]}, {"type": "object", "oneOf": [first, second]},
        {**first, "unevaluatedProperties": draw.choice(NODES)}, {"$defs": {"d": first}, "$ref": "#/$defs/d"},
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(few(40)))
def test_documents_against_jsonschema(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with few patterns and pairs, which are otherwise treated one by one."""
    draw = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(string_language, "FEW_LANGUAGES", 1)
        monkeypatch.setattr(objects, "MANY_PAIRS", 1)
        monkeypatch.setattr(unnamed_keys, "MANY_PAIRS", 1)
    schema = random_schema(draw)
    documents = [
        {name: draw.choice(VALUES) for name in draw.sample(NAMES, draw.choice([0, 1, 1, 2, 3]))} for _ in range(8)
    ]
    try:
        index = Index.from_json_schema(schema, byte_vocabulary(), additional_properties="open", property_order="any")
    except SpecError as error:
        refused = error.code, error.message
        assert "edges" in refused[1] or not any(map(jsonschema.Draft202012Validator(schema).is_valid, documents)), (
            refused
        )
        return
    for document in documents:
        guide = index.guide()
        accepted = guide.accept_string(json.dumps(document, ensure_ascii=False)) and guide.can_finish
        assert accepted == jsonschema.Draft202012Validator(schema).is_valid(document), (schema, document)


@pytest.mark.parametrize(
    "make",
    [
        lambda patterns, _: patterns,
        lambda patterns, names: {**patterns, "properties": {name: {} for name in names}},
        lambda patterns, _: {**patterns, "additionalProperties": False, "propertyNames": {"maxLength": 64}},
        lambda patterns, _: {"$defs": {"d": patterns}, "properties": {"x": {"$ref": "#/$defs/d"}}},
        lambda patterns, _: {"anyOf": [patterns, {"type": "object", "patternProperties": {"^z": {"type": "null"}}}]},
        lambda patterns, _: {"oneOf": [patterns, {"type": "object", "required": ["a"]}]},
        lambda patterns, _: {**patterns, "unevaluatedProperties": False},
    ],
)
def test_hundreds_of_patterns(make: Any) -> None:
    """Once 64 were refused, and 60 took 1.5 s."""
    patterns = {f"^k{i}_": {"type": "string", "maxLength": i} for i in range(300)}
    schema = make({"type": "object", "patternProperties": patterns}, [f"k{i}_x" for i in range(300)])
    with at_most(2):
        json_schema_to_grammar(schema)
    with at_most(2):
        json_schema_to_grammar(schema, order="any")
