"""JSON Schema (drafts 4 to 2020-12) → Grammar, exactly, or a refusal by name.

The way of a schema: `document` finds sub-schemas and follows references; `keywords` gives each sub-schema its canonical
form (`form`), on which `algebra` computes ∧, ∨, ¬ (`objects` and `arrays` for shapes, `strings` and `numbers` for
scalars); `emission` turns forms into rules (`members` for objects, `items` for arrays), written as `text` says.
``docs/json-schema.md`` is the list of what is enforced.
"""

from __future__ import annotations

from dotllm.languages.json_schema.build import json_object_to_grammar, json_schema_to_grammar, schema_expression
from dotllm.languages.json_schema.options import Budget, Options

__all__ = ["Budget", "Options", "json_object_to_grammar", "json_schema_to_grammar", "schema_expression"]
