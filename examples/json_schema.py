"""A document that satisfies a JSON Schema: ``python examples/json_schema.py``."""

from __future__ import annotations

import json

import jsonschema
from loop import vocabulary, write

from dotllm import Index

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "tags": {"type": "array", "items": {"enum": ["new", "sold", "used"]}, "maxItems": 3, "uniqueItems": True},
        "price": {"type": "integer", "minimum": 1, "maximum": 999, "multipleOf": 5},
    },
    "required": ["id", "tags", "price"],
    "additionalProperties": False,
}

if __name__ == "__main__":
    # Keys come in declared order; property_order="any" lets the model choose. any_whitespace=False saves tokens.
    text = write(Index.from_json_schema(SCHEMA, vocabulary(), any_whitespace=False))
    jsonschema.validate(json.loads(text), SCHEMA)
    print(text)
