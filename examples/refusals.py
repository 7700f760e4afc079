"""A schema that cannot be enforced is refused, with a code, a place and a remedy: ``python examples/refusals.py``."""

from __future__ import annotations

from loop import vocabulary

from dotllm import Index, SpecError

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "strnig"}}},
    {"type": "integer", "minimum": 5, "maximum": 3},
    {"$ref": "https://example.com/schema.json"},
]

if __name__ == "__main__":
    for schema in SCHEMAS:
        try:
            Index.from_json_schema(schema, vocabulary())
        except SpecError as error:
            print(f"{error.code} at {error.pointer!r}: {error.message}\n  {error.help or ''} {error.url}")
        else:
            raise AssertionError(schema)
