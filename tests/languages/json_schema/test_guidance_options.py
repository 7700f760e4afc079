"""``x-guidance``: each option means what it means in llguidance, or is refused."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest

from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.structural_tag.build import structural_tag_to_grammar
from tests.grammar.reference import accepts
from tests.languages.lark.test_lazy import BYTES

TEXTS = [
    '{"a":1,"b":[1,2]}',
    '{"a": 1, "b": [1, 2]}',
    '{ "a" : 1 , "b": [1, 2]}',
    '{"a":  1, "b": [1, 2]}',
    '{"a": 1, "b": [1, 2], "c\\"": [{"x": [1, 2]}]}',
    '{"a":1,\n"b":[1,\n2]}',
    '{"a":\n1,"b":[\t]}',
]


def schema(options: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "integer"}}, 'c"': {}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "x-guidance": options,
    }


def peer(options: Any, text: str) -> bool:
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema(options)))
    matcher = llguidance.LLMatcher(BYTES, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    "options",
    [
        # What guidance's own client writes.
        {"whitespace_flexible": False, "whitespace_pattern": None, "item_separator": ", ", "key_separator": ": ", "coerce_one_of": True, "lenient": False},
        {"whitespace_flexible": True},
        {"whitespace_flexible": False},
        {"whitespace_flexible": True, "item_separator": ", ", "key_separator": ": "},
        {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": "(: )"},
        {"whitespace_flexible": False, "item_separator": " ,"},
        {"whitespace_flexible": False, "key_separator": "[ \\n]*:\\n?"},
        {"whitespace_pattern": "[ ]"},
        {"whitespace_pattern": "[ ]", "whitespace_flexible": False, "item_separator": ",\n"},
        {"whitespace_pattern": "\\n|\\t", "item_separator": ",\\s*"},
        {"whitespace_flexible": False, "json_allowed_escapes": 'nrbtf"u\\'},
        {"whitespace_flexible": False, "lenient": True},
    ],
)  # fmt: skip
def test_honoured_as_by_llguidance(options: dict[str, Any]) -> None:
    grammar = json_schema_to_grammar(schema(options))
    assert [text for text in TEXTS if accepts(grammar, text.encode())] == [t for t in TEXTS if peer(options, t)]


@pytest.mark.parametrize(
    ("options", "error", "place"),
    [
        (True, InvalidSpecError, "/x-guidance"),
        ({"bogus": 1}, InvalidSpecError, "/x-guidance/bogus"),
        ({"lenient": None}, InvalidSpecError, "/x-guidance/lenient"),
        ({"whitespace_pattern": 1}, InvalidSpecError, "/x-guidance/whitespace_pattern"),
        ({"item_separator": ";"}, InvalidSpecError, "/x-guidance/item_separator"),
        ({"item_separator": ",|;"}, InvalidSpecError, "/x-guidance/item_separator"),
        ({"item_separator": ",\u00a0"}, InvalidSpecError, "/x-guidance/item_separator"),
        ({"key_separator": ""}, InvalidSpecError, "/x-guidance/key_separator"),
        ({"key_separator": "("}, InvalidSpecError, "/x-guidance/key_separator"),
        ({"key_separator": None}, InvalidSpecError, "/x-guidance/key_separator"),
        ({"json_allowed_escapes": "n"}, UnsupportedError, "/x-guidance/json_allowed_escapes"),
        ({"json_allow_general_unicode_escapes": True}, UnsupportedError, "/x-guidance/json_allow_general_unicode_escapes"),
    ],
)  # fmt: skip
def test_refused(options: Any, error: type[SpecError], place: str) -> None:
    with pytest.raises(error) as found:
        json_schema_to_grammar(schema(options))
    assert found.value.place == place


@pytest.mark.parametrize("style", ["qwen_xml", "cohere_xml"])
def test_other_styles_refuse_it(style: str) -> None:
    tag = {"format": {"type": "json_schema", "json_schema": schema({"whitespace_flexible": False}), "style": style}}
    with pytest.raises(UnsupportedError, match="x-guidance"):
        structural_tag_to_grammar(json.dumps(tag))
