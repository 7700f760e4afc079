"""What vLLM's tool parsers learn about the types of arguments, with no references left to follow."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.languages.json_schema import flat_properties
from dotllm.vllm_plugin.tools import argument_types


class Function(SimpleNamespace):
    """Stands in for the function of a tool."""


def read(parameters: dict[str, Any]) -> dict[str, Any]:
    return argument_types.properties_of(Function(name="f", parameters=parameters))


def test_references_are_followed_and_what_is_recursive_is_cyclic() -> None:
    node = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/a~1b"}}}
    found = read({"$ref": "#/$defs/a%7E1b", "$defs": {"a/b": node}})
    assert found["n"] == {"type": ["integer"]}
    assert found["next"]["properties"]["next"]["properties"]["n"]["type"] == ["integer"]


def test_types_of_alternatives_are_one_list() -> None:
    defs = {"p": {"type": "object", "properties": {"x": {"const": 1}}}, "q": {"enum": ["a", 2]}}
    one = {"anyOf": [{"$ref": "#/$defs/p"}, {"$ref": "#/$defs/q"}, {"type": "null"}]}
    found = read({"properties": {"one": one, "any": {}}, "$defs": defs})
    assert found["one"]["type"] == ["integer", "null", "number", "object", "string"]
    assert found["one"]["properties"]["x"]["type"] == ["integer", "number"]  # 1.0 equals 1
    assert found["any"] is True
    two = {"anyOf": [{"$ref": "#/$defs/p"}, {"type": "object", "properties": {"y": {"type": "integer"}}}]}
    assert "properties" not in read({"properties": {"two": two}, "$defs": defs})["two"]


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string", "allOf": [{"pattern": "1"}, {"maxLength": 3}]}, ["string"]),
        ({"allOf": [{"pattern": "1"}, {"type": ["integer", "null"]}, {"type": ["number", "string"]}]}, ["integer"]),
        ({"anyOf": [{"minimum": 1}, {"type": "null"}], "type": ["null", "number"]}, ["null", "number"]),
        ({"type": "integer", "enum": [1, "1"]}, ["integer"]),
        ({"enum": [1, "1"], "const": "1"}, ["string"]),
        ({"enum": [2, "1.0"]}, ["integer", "string"]),
        ({"enum": [2, ""]}, ["integer", "number", "string"]),
        ({"anyOf": [{"enum": ["a", 1.5]}, False, {"type": "null"}]}, ["null", "number", "string"]),
        ({"type": "int", "enum": ["a"]}, ["int", "string"]),  # vLLM's own name
        ({"anyOf": [{"type": "array"}, {"description": "anything"}]}, ["array", "string"]),
        ({"not": {"type": ["string", "array", "object", "boolean"]}}, ["integer", "null", "number"]),
    ],
)
def test_what_holds_together_has_the_types_of_all(schema: dict[str, Any], types: list[str]) -> None:
    assert read({"properties": {"a": schema, "b": {"const": 1}}})["a"]["type"] == types


@pytest.mark.parametrize(
    "keyword", ["allOf", "anyOf", "oneOf", "not", "$ref", "enum", "const", "type", *["properties", "items"]]
)
@pytest.mark.parametrize("value", [None, 5, {}, [], [None, 5], "x", True], ids=str)
def test_what_is_no_schema_breaks_nothing(keyword: str, value: Any) -> None:
    """Schemas of tools that are not strict are not checked."""
    assert {*read({"properties": {"a": {keyword: value}, "b": {"const": 1}}})} == {"a", "b"}


def test_objects_that_are_listed_name_their_properties() -> None:
    assert read({"type": "object", "enum": [{"a": 5}, {"a": None, "b": "x"}]})["a"]["type"] == [
        "integer",
        "null",
        "number",
    ]


def test_tools_in_a_namespace() -> None:
    """The Responses API has namespaces: a call names the namespace and the tool."""
    inner = Function(name="f", parameters={"properties": {"a": {"const": 1}}})
    space = SimpleNamespace(name="crm", tools=[inner])
    found = argument_types._find_tool_properties([space], "crm__f", original=lambda *_: {})
    assert found["a"]["type"] == ["integer", "number"]


def test_a_definition_is_read_once() -> None:
    """With sixteen definitions, each twice in the one before, it gave up, and all properties lost their types."""
    defs: Any = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    found = read({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d40": {"type": "integer"}}})
    assert found["a"] == {"type": ["integer"]}


def test_a_long_enumeration_is_read_once() -> None:
    """Three thousand references to an enumeration of 20,000 values blocked an event loop for four seconds."""
    asked = []
    schema = {"$defs": {"E": {"enum": [*range(20)]}}, "properties": {f"p{n}": {"$ref": "#/$defs/E"} for n in range(99)}}
    found = flat_properties.properties(schema, lambda part: asked.append("enum" in part) or ["integer"])  # type: ignore[func-returns-value]
    assert len(found) == 99 and sum(asked) == 1


def test_parts_of_what_names_no_type_are_kept() -> None:
    """minimax_m3 writes markup, and looks up the types of its parts."""
    found = read({"properties": {"a": {"items": {"const": 1}}, "b": {"properties": {"c": {"const": 1}}}}})
    assert found["a"]["items"]["type"] == found["b"]["properties"]["c"]["type"] == ["integer", "number"]


def test_what_is_not_named_has_a_schema() -> None:
    patterns = {"^n_": {"type": "null"}, "(a+)+$": {"type": "boolean"}}  # the second is not tried: it might take years
    found = read({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}, "patternProperties": patterns})
    assert found.get("a") is True and found.get("n_b")["type"] == ["null"]
    assert found.get("b")["type"] == ["boolean", "integer"]
    for pattern in ("[z-a]", "[]", "*", "(", "^+", "a**"):  # only strict tools with these are refused
        assert read({"patternProperties": {pattern: {"type": "null"}}}).get("b")["type"] == ["null"]
    assert read({"patternProperties": {"^n_": {"type": "null"}}}).get("b") is True
    only = read({"additionalProperties": {"type": "integer"}})
    assert only and only.get("n")["type"] == ["integer"]
    assert "arguments" in only and "input" in only, "no parser may take them for a wrapper of arguments"


def test_alternatives_name_a_property_differently() -> None:
    one, other = {"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "null"}, "b": {"const": 1}}}
    for schema in ({"anyOf": [one, other]}, {"then": one, "else": other}, {"dependentSchemas": {"a": one, "b": other}}):
        found = read({"type": "object", **schema})
        assert found["a"]["type"] == ["integer", "null"] and found["b"]["type"] == ["integer", "number"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "null"}, {"type": "string"}]}}},
        {},
        {"properties": []},
        {  # too large
            "properties": {f"p{n}": {"anyOf": [{"$ref": f"#/$defs/{k}"} for k in range(200)]} for n in range(200)},
            "$defs": {str(k): {"type": "null"} for k in range(200)},
        },
    ],
)
def test_schemas_that_are_left_as_they_are(parameters: dict[str, Any]) -> None:
    properties = parameters.get("properties")
    assert read(parameters) == (properties if isinstance(properties, dict) else {})


@pytest.mark.parametrize("reference", ["#/$defs/a", "#/nowhere/0", "other.json", "#anchor", 5, "#/$defs/b/anyOf/9"])
def test_references_that_lead_nowhere(reference: Any) -> None:
    defs = {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}
    assert read({"properties": {"x": {"$ref": reference}}, "$defs": defs})["x"] is True


def test_a_function_is_read_once_and_forgotten_with_its_request() -> None:
    function = Function(name="f", parameters={"properties": {"a": {"$ref": "#"}}})
    before = len(argument_types._known)
    assert argument_types.properties_of(function) is argument_types.properties_of(function)
    del function
    gc.collect()
    assert len(argument_types._known) <= before


@pytest.mark.parametrize(
    ("value", "types", "expected"),
    [
        (" 27", ["array", "string"], " 27"),
        ('"a"', ["object", "string"], '"a"'),
        ("{}", ["array", "string"], "{}"),
        ("null", ["array", "string"], "null"),
        ('["a"]', ["array", "string"], ["a"]),
        ("27", ["array", "integer", "string"], 27),
        ("00501", ["integer", "string"], "00501"),
        ("1_000", ["integer", "string"], "1_000"),
        ("0", ["boolean", "string"], "0"),
        ("NULL", ["null", "string"], "NULL"),
        (" 5\n", ["integer", "string"], 5),
        ("0", ["boolean"], False),
        ("null", ["array", "null", "string"], None),
        ("true", ["boolean", "object", "string"], True),
        ("1.5", ["array", "integer", "string"], "1.5"),
        ("27", ["array"], 27),
        ("27", ["array", "int", "string"], 27),
    ],
)
def test_a_string_that_is_json_stays_a_string(value: str, types: list[str], expected: Any) -> None:
    """For ``str | list[str]``, vLLM takes any JSON for the list."""
    from vllm.tool_parsers import utils

    original = utils.coerce_to_schema_type
    assert argument_types._coerce_to_schema_type(value, types, original=original) == expected
