"""Where a document stops fitting, and which keyword is to blame."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm import Index
from dotllm.diagnosis.why import byte_vocabulary, explain, explain_schema
from tests.diagnosis import suite_blame

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "sky": {"enum": ["sun", "cloud"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "home": {"$ref": "#/$defs/address"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"address": {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}}}},
}


@pytest.mark.parametrize(
    ("document", "offset", "place", "blamed", "help"),
    [
        ('{"name":"Robert","age":3}', 14, "/name", "/properties/name/maxLength", "write at most 5 characters"),
        ('{"name":"Bob","age":131}', 22, "/age", "/properties/age/maximum", "write a number of at most 130"),
        ('{"name":"Bob","age":-1}', 20, "/age", "/properties/age/minimum", "write a number of at least 0"),
        ('{"name":"Bob","age":"x"}', 20, "/age", "/properties/age/type", 'write an integer, or allow "string" in type'),
        ('{"name":"Bob"}', 13, "", "/required", 'add "age"'),
        ('{"name":"Bob","age":3,"x":1}', 23, "", "/additionalProperties", 'leave out "x", or name it in properties'),
        ('{"name":"Bob","age":3,"sky":"sum"}', 31, "/sky", "/properties/sky/enum", 'did you mean "sun"?'),
        ('{"name":"Bob","age":3,"tags":["a","b","c"]}', 37, "/tags", "/properties/tags/maxItems", "write at most 2 items"),
        ('{"name":"Bob","age":3,"tags":["a","a"]}', 36, "/tags", "/properties/tags/uniqueItems", "write no two equal items"),
        ('{"name":"Bob","age":3,"home":{"zip":"9"}}', 38, "/home/zip", "/$defs/address/properties/zip/pattern", "write a text that matches"),
    ],
)  # fmt: skip
def test_the_keyword_at_fault(document: str, offset: int, place: str, blamed: str, help: str) -> None:
    why = explain_schema(SCHEMA, document)
    assert why is not None
    assert (why.offset, why.pointer, [one.pointer for one in why.blamed]) == (offset, place, [blamed])
    assert help in why.help and why.is_minimal and why.compiles < 40


@pytest.mark.parametrize(
    ("document", "reason", "help"),
    [
        ('{"age":3,"name":"Bob"}', "keys come in the order", "order"),
        ('{"name":"Bob","age":3.0}', "never generated in this spelling", 'write {"name": "Bob", "age": 3}'),
        ('{"name":"Bob","age":3', "not JSON", ""),
        ("nope", "not JSON", ""),
    ],
)
def test_no_keyword_is_at_fault(document: str, reason: str, help: str) -> None:
    why = explain_schema(SCHEMA, document)
    assert why is not None
    assert reason in why.reason and help in why.help and not why.blamed


def test_what_is_allowed_there() -> None:
    why = explain_schema({"enum": ["sun", "cloud"]}, '"sum"')
    assert why is not None and (why.allowed, why.forced) == ('"n"', 'n"')
    why = explain_schema({"type": "integer", "maximum": 130}, "131")
    assert why is not None and (why.allowed, why.offset) == ('"0" or the end', 2)


def test_ranges_and_numbers_in_words() -> None:
    why = explain_schema({"type": "string", "pattern": '^[A-Z_"ab]+$'}, '"-"')
    assert why is not None and why.allowed == '"A" to "Z", "\\", "_", "a" or "b"'
    for keyword, document, help in (
        ("minItems", "[]", "write at least 1 item"),
        ("minLength", '""', "write at least 1 character"),
        ("minProperties", "{}", "write at least 1 property"),
        ("minimum", "0", "write a number of at least 1"),
    ):
        why = explain_schema({keyword: 1}, document)
        assert why is not None and why.help == help


@pytest.mark.parametrize(("most", "help"), [(1, "write at most 1 item"), (2, "write at most 2 items")])
def test_items_of_contains_in_words(most: int, help: str) -> None:
    """The singular was "1 items of contain"."""
    why = explain_schema({"contains": {"type": "integer"}, "maxContains": most}, str(list(range(most + 1))))
    assert why is not None and why.help == f"{help} allowed by contains"


@pytest.mark.parametrize("name", ["required", "type", "enum", "minItems", "items"])
def test_properties_that_are_called_like_keywords(name: str) -> None:
    why = explain_schema({"properties": {name: False}}, json.dumps({name: 1}))
    assert why is not None and [one.pointer for one in why.blamed] == [f"/properties/{name}"]


def test_a_key_that_comes_twice() -> None:
    why = explain_schema({"additionalProperties": {"additionalProperties": {"maximum": 3}}}, '{"a": {"b": 4}, "a": 2}')
    assert why is not None and why.reason


def test_a_pattern_that_python_does_not_know() -> None:
    schema = {"patternProperties": {r"^\\p{Lu}$": {}}, "additionalProperties": False}
    why = explain_schema(schema, '{"a": 1}')
    assert why is not None and why.help == 'leave out "a", or name it in properties'


def test_a_large_document() -> None:
    document = json.dumps(["x" * 100] * 5000 + [1])
    why = explain_schema({"items": {"type": "string"}}, document)
    assert why is not None and why.pointer == "/5000" and [one.pointer for one in why.blamed] == ["/items/type"]


def test_a_document_that_fits() -> None:
    assert explain_schema(SCHEMA, '{"name": "Bob", "age": 3, "tags": ["a", "b"]}') is None


def test_keywords_that_are_at_fault_together() -> None:
    schema = {"anyOf": [{"maximum": 3}, {"type": "string"}], "allOf": [{"maximum": 5}]}
    why = explain_schema(schema, "7")
    assert why is not None and why.is_minimal
    blamed = {one.pointer for one in why.blamed}
    assert blamed in ({"/allOf/0/maximum", "/anyOf/0/maximum"}, {"/allOf/0/maximum", "/anyOf/1/type"})
    assert "forbid it" in why.reason


def test_texts_that_are_no_json() -> None:
    why = explain(lambda: Index.from_regex("[a-c]+é", byte_vocabulary()), "abxé")
    assert why is not None and (why.offset, why.pointer, why.blamed) == (2, None, ())
    assert explain(lambda: Index.from_regex("[a-c]+é", byte_vocabulary()), "abé") is None
    why = explain(lambda: Index.from_regex("[a-c]+é", byte_vocabulary()), "ab")
    assert why is not None and (why.offset, why.reason) == (2, "the document ends too early")


@pytest.mark.skipif(not suite_blame.SUITE.exists(), reason="the official suite is not next to this repository")
def test_blame_is_what_jsonschema_says() -> None:
    """Compares every third invalid document of the official suite."""
    counts, wrong = suite_blame.shares(step=3)
    judged = counts.total() - counts["refused"]
    assert judged > 200 and not counts["fits"]
    assert counts["right"] >= 0.95 * judged, wrong
    assert counts["right"] + counts["inside"] >= 0.96 * judged, wrong


def test_a_large_schema_is_searched_within_its_limits() -> None:
    properties = {f"p{i}": {"type": "string", "maxLength": 3} for i in range(300)}
    why = explain_schema({"type": "object", "properties": properties}, json.dumps({"p7": "abcd"}))
    assert why is not None and [one.pointer for one in why.blamed] == ["/properties/p7/maxLength"]
    assert why.compiles < 10
