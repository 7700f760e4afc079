"""JSON as people write it, in the tokenizer's own tokens, is accepted token by token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm import Index
from tests.tokenizers.real import Real

DOCUMENT = {
    "name": "Zoë O'Neil",
    "about": 'Line one\nline two, "quoted" \\ and \ttabs: 日本語, 🎉',
    "age": 42,
    "score": -1.5e-3,
    "active": True,
    "boss": None,
    "tags": ["red", "green", "  two  spaces  ", ""],
    "matrix": [[1, 2], [3, 4], []],
    "address": {"street": "1 Main St.", "geo": {"lat": 52.52, "lon": 13.405}, "empty": {}},
}
STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "one line": {},
    "indented by 2": {"indent": 2},
    "indented by 4": {"indent": 4},
    "indented by 8": {"indent": 8},
    "indented by tabs": {"indent": "\t"},
}


def schema_of(value: Any) -> dict[str, Any]:
    """A schema that only allows values with the shape of ``value``."""
    if isinstance(value, dict):
        properties = {key: schema_of(item) for key, item in value.items()}
        return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
    if isinstance(value, list):
        items = [json.loads(text) for text in {json.dumps(schema_of(item)) for item in value}]
        return {"type": "array", "items": {"anyOf": items} if items else True}
    types = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return {"type": types[type(value)]}


@pytest.mark.parametrize("mode", ["JSON mode", "schema"])
@pytest.mark.parametrize("ascii_only", [False, True], ids=["UTF-8", "ASCII"])
@pytest.mark.parametrize("style", STYLES)
def test_accepted_token_by_token(real: Real, style: str, ascii_only: bool, mode: str) -> None:
    text = json.dumps(DOCUMENT, ensure_ascii=ascii_only, **STYLES[style])
    vocabulary = real.vocabulary
    if mode == "schema":
        index = Index.from_json_schema(schema_of(DOCUMENT), vocabulary)
    else:
        index = Index.from_json_object(vocabulary)
    guide = index.guide()
    ids = real.continued(text)
    assert real.said(ids) == text
    for at, token in enumerate(ids):
        mask = index.masks[guide.mask_row]
        assert mask[token >> 5] >> (token & 31) & 1, (real.said(ids[: at + 1])[-20:], real.token(token))
        assert guide.advance(token)
    assert guide.can_finish and guide.advance(vocabulary.eos_token_ids[0])
