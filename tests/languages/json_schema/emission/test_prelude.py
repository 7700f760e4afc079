"""Grammars that begin with the prelude mean the same as those that make its pieces themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm.automata.lowering import lower
from dotllm.errors import InvalidSpecError
from dotllm.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.languages.json_schema import Options, json_schema_to_grammar, schema_expression
from tests.grammar.reference import accepts

SCHEMAS: list[Any] = [
    True,
    {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {}, "b?\u007f": {"type": "string"}}},
    {"type": ["integer", "boolean"], "minimum": -3},
    {"properties": {"é": {"const": 1}, 'q"': {"const": 2}}, "required": ["é"], "additionalProperties": {"const": 3}},
]
TEXTS = [
    "{}", "[ ]", "12", "-4", "true", "null", '"x"', '{"a": 1, "ab": [null, {"": 0}]}', '{"a": "1"}', '{"b": 1.5e3}',
    '{"a":1,"c":2}', '{"c": 3}', '{"é": 1, "x": 3}', '{"é": 1, "q\\"": 2}', '{"é": 1, "q\\"": 3}', '{"aa": [], "b": 3}',
    '{"b?\u007f": ""}', '{"b?\u007f": 3}', '{"é": 1, "é": 3}', '{"\\u0061": 1}', '{"\\n": 3, "é": 1}',
    '"\\ud83d\\ude00"',
]  # fmt: skip


@pytest.mark.parametrize(
    "options", [Options(), Options(any_whitespace=False), Options(whitespace_pattern=" ?")], ids=str
)
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_with_and_without(schema: Any, options: Options) -> None:
    own = Grammar()
    own.literal("not new")
    own.start = schema_expression(schema, own, options)
    from_prelude = json_schema_to_grammar(
        schema, any_whitespace=options.any_whitespace, whitespace_pattern=options.whitespace_pattern
    )
    verdicts = [accepts(from_prelude, text.encode()) for text in TEXTS]
    assert verdicts == [accepts(own, text.encode()) for text in TEXTS]
    assert any(verdicts)
    # The automata are of the same size, too: unneeded parts of the prelude are left out.
    assert len(lower(prepare(from_prelude)).block) == len(lower(prepare(own)).block)


def test_a_wrong_pattern_of_white_space_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidSpecError, match="whitespace_pattern"):
            json_schema_to_grammar({}, whitespace_pattern="(")
