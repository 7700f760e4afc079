"""Lists of conditionals on one property allow what their product allows, and compile in linear time."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from dotllm import Index, Vocabulary
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.reading import conditionals
from tests.cases import few

VOCABULARY = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
Schema = dict[str, Any]


def _then(draw: random.Random, i: int) -> Any:
    name = draw.choice(["x", "y", f"p{i}"])
    kind = draw.choice(["integer", "string", "null"])
    return draw.choice(
        [
            {"required": [name]},
            {"properties": {name: {"type": kind}}, "required": [name]},
            {"properties": {name: {"type": kind}}},
            {"properties": {name: False}},
            {"not": {"required": [name]}},
            False,
        ]
    )


def _schema(draw: random.Random) -> Schema:
    values = draw.choice(["abcdef", "ab"])
    is_needed, is_typed = draw.random() < 0.5, draw.random() < 0.3
    cases: list[Any] = []
    for i in range(draw.randrange(3, 8)):
        if draw.random() < 0.1:
            cases.append({"properties": {"x": {"type": ["integer", "string"]}}})
            continue
        value: Schema = draw.choice([{"const": draw.choice(values)}, {"enum": [*draw.sample(values, 2)]}])
        condition: Schema = {"properties": {"k": value}}
        if is_needed or draw.random() < 0.05:
            condition["required"] = ["k"]
        if is_typed:
            condition["type"] = "object"
        case: Schema = {"if": condition, "then": _then(draw, i)}
        if draw.random() < 0.05:
            case["else"] = _then(draw, i)
        cases.append(case)
    schema: Schema = {"allOf": cases}
    own: Schema = {"properties": {"k": {"type": "string"}, **({"x": {}} if draw.random() < 0.5 else {})}}
    if draw.random() < 0.7:
        own["type"] = "object"
    if draw.random() < 0.6:
        own["required"] = ["k"]
    return own | schema if draw.random() < 0.5 else schema | own


def _masks(index: Index, text: str) -> list[bytes]:
    """The masks along ``text``, up to its first invalid byte; the last mask says whether it may end."""
    guide, masks = index.guide(), []
    for byte in text.encode():
        mask = index.masks[guide.mask_row]
        masks.append(mask.tobytes())
        if not mask[byte >> 5] >> (byte & 31) & 1:
            return masks
        guide.advance(byte)
    return [*masks, index.masks[guide.mask_row].tobytes()]


def _accepts(index: Index, text: str) -> bool:
    masks = _masks(index, text)
    return len(masks) == len(text.encode()) + 1 and bool(masks[-1][32] & 1)


@pytest.mark.parametrize("seed", range(few(150)))
def test_cases_mean_what_the_product_means(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    schema = _schema(draw)
    validator = jsonschema.Draft202012Validator(schema)
    options: Schema = {"property_order": "any"} if draw.random() < 0.3 else {}
    try:
        index = Index.from_json_schema(schema, VOCABULARY, additional_properties="open", **options)
        closed = Index.from_json_schema(schema, VOCABULARY, **options)
    except ValueError:
        assert "False" in str(schema) or "not" in str(schema)
        return
    monkeypatch.setattr(conditionals, "FEW_CASES", 1 << 20)
    product = Index.from_json_schema(schema, VOCABULARY, additional_properties="open", **options)
    closed_product = Index.from_json_schema(schema, VOCABULARY, **options)
    for _ in range(12):
        value: Any = {"k": draw.choice("abcdefg")} if draw.random() < 0.9 else {}
        for name in draw.sample(["x", "y", "p0", "p1", "p2", "p3"], draw.randrange(4)):
            value[name] = draw.choice([1, "s", None])
        if draw.random() < 0.1:
            value = draw.choice([1, "k", None, []])
        text = json.dumps(value)
        assert _masks(index, text) == _masks(product, text), text
        assert _masks(closed, text) == _masks(closed_product, text), text
        if options or not isinstance(value, dict):
            assert _accepts(index, text) == validator.is_valid(value), text


@pytest.mark.parametrize("is_needed", [True, False])
def test_hundreds_of_cases(is_needed: bool) -> None:
    def nodes(count: int) -> int:
        cases = [
            {
                "if": {"properties": {"k": {"const": f"v{i}"}}, "required": ["k"] if is_needed else []},
                "then": {"properties": {f"p{i}": {"type": "integer"}}, "required": [f"p{i}"]},
            }
            for i in range(count)
        ]
        schema = {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"], "allOf": cases}
        return len(json_schema_to_grammar(schema).kind)

    assert nodes(512) < 2.2 * nodes(256)  # the product of 64 or more was refused
