"""Compiles JSON Schema (drafts 4 to 2020-12) into a Grammar, exactly, or refuses it by name.

The path of a schema, folder by folder:

* `reading` finds sub-schemas, follows references and gives each sub-schema its normal form.
* `algebra` computes ∧, ∨, ¬ on normal forms; `strings` and `numbers` do so for scalars.
* `objects` and `arrays` turn constraints into automata over members and items.
* `emission` turns normal forms into rules and decides how documents are written.

`build` is the entry point. Structural tags write the same values in other styles: they read a schema
(`build.read_schema`) and extend `emission.emitter.Emitter` and `json_text.JsonText`.
``docs/json-schema.md`` lists what is enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.languages.json_schema.build import json_object_to_grammar, json_schema_to_grammar, schema_expression
    from dotllm.languages.json_schema.options import Options, SchemaBudget

__all__ = ["Options", "SchemaBudget", "json_object_to_grammar", "json_schema_to_grammar", "schema_expression"]

__getattr__, __dir__ = exports(
    __name__, build="json_object_to_grammar json_schema_to_grammar schema_expression", options="Options SchemaBudget"
)
