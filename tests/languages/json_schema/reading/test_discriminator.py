"""``discriminator`` (OpenAPI, Pydantic): readers choose the alternative by this property, so it is required."""

from __future__ import annotations

from typing import Any

import pytest

from tests.languages.json_schema.verdicts import Acceptor

CAT: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"const": "cat", "default": "cat"}, "lives": {"type": "integer"}},
    "required": ["lives"],
}
DOG: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["dog", "puppy"]}, "good": {"type": "boolean"}},
    "required": ["good"],
}
BY_KIND = {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}}
DEFINED = {"$defs": {"Cat": CAT, "Dog": DOG, "Animal": {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}}}
BOTH = [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
TAGGED = [{"kind": "cat", "lives": 9}, {"kind": "dog", "good": False}, {"kind": "puppy", "good": True}]
UNTAGGED = [{"lives": 9}, {"good": True}, {"kind": "cat"}]


@pytest.mark.parametrize("closing", ["open", "closed"])
@pytest.mark.parametrize(
    "union",
    [
        {"oneOf": BOTH, "discriminator": BY_KIND},
        {"anyOf": BOTH, "discriminator": {"propertyName": "kind"}},
        {"type": "object", "oneOf": [CAT, DOG], "discriminator": BY_KIND},
        {"oneOf": [{"$ref": "#/$defs/Animal"}], "discriminator": BY_KIND},
        {"oneOf": [{"allOf": [{"type": "object"}, BOTH[0]]}, BOTH[1]], "discriminator": BY_KIND},
    ],
    ids=["oneOf", "anyOf", "inline", "a union in it", "allOf in it"],
)
def test_the_property_is_written(union: dict[str, Any], closing: str) -> None:
    acceptor = Acceptor(DEFINED | union, additional_properties=closing)
    for value in TAGGED:
        assert acceptor.value(value), value
    for value in UNTAGGED:
        assert not acceptor.value(value), value


def test_what_is_no_object_needs_none() -> None:
    acceptor = Acceptor({"anyOf": [CAT, {"type": "null"}], "discriminator": {"propertyName": "kind"}})
    assert acceptor.value(None)
    assert not acceptor.value({"lives": 1})


@pytest.mark.parametrize("closing", ["open", "closed"])
def test_a_property_that_an_alternative_does_not_declare_is_an_annotation(closing: str) -> None:
    """Otherwise no closed object could fit that alternative."""
    other = {"type": "object", "properties": {"other": {"type": "integer"}}}
    schema = {"anyOf": [CAT, other], "discriminator": {"propertyName": "kind"}}
    assert Acceptor(schema, additional_properties=closing).value({"other": 1})


@pytest.mark.parametrize(
    "more",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "discriminator": {"propertyName": "kind"}},
        {"discriminator": "kind"},
        {"discriminator": {"propertyName": 1}},
        {"discriminator": {}},
        {"discriminator": None},
    ],
)
def test_where_it_is_an_annotation(more: dict[str, Any]) -> None:
    """In a schema that names its dialect, and where it does not have OpenAPI's form."""
    acceptor = Acceptor({"anyOf": [CAT, DOG]} | more)
    assert acceptor.value({"lives": 1})


def test_the_declaration_is_looked_for_once() -> None:
    """The number of ways through these definitions grows forty-fold with each of them."""
    wide: dict[str, Any] = {f"D{i}": {"anyOf": [{"$ref": f"#/$defs/D{i + 1}"}] * 40} for i in range(30)}
    schema = {
        "anyOf": [CAT, {"type": "null"}, {"$ref": "#/$defs/D0"}],
        "discriminator": {"propertyName": "kind"},
        "$defs": wide | {"D30": DOG},
    }
    assert Acceptor(schema).value({"kind": "dog", "good": True})


def test_a_union_that_holds_itself() -> None:
    node = {"type": "object", "properties": {"kind": {"const": "node"}, "next": {"$ref": "#/$defs/Any"}}}
    end = {"type": "object", "properties": {"kind": {"const": "end"}}}
    union = {
        "oneOf": [{"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/End"}, {"$ref": "#/$defs/Again"}],
        "discriminator": {"propertyName": "kind"},
    }
    again = {"type": "object", "properties": {"kind": {"const": "again"}, "of": {"$ref": "#/$defs/Any"}}}
    node["required"], again["required"] = ["next"], ["of"]
    acceptor = Acceptor({"$ref": "#/$defs/Any", "$defs": {"Any": union, "Node": node, "End": end, "Again": again}})
    assert acceptor.value({"kind": "node", "next": {"kind": "again", "of": {"kind": "end"}}})
    assert not acceptor.value({"kind": "node", "next": {"of": {"kind": "end"}}})


DEFAULTED: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["dog", "puppy"], "default": "dog"}, "good": {"type": "boolean"}},
    "required": ["good"],
}
NEEDED = {**DOG, "required": ["kind", "good"]}


@pytest.mark.parametrize("closing", ["open", "closed"])
@pytest.mark.parametrize("dog", [DEFAULTED, NEEDED], ids=["a default", "required"])
def test_a_client_may_have_left_the_discriminator_out(dog: dict[str, Any], closing: str) -> None:
    """pydantic-ai does: a ``oneOf`` of objects that a property with a default tells apart."""
    schema = {"oneOf": BOTH, "$defs": {"Cat": CAT, "Dog": dog}}
    acceptor = Acceptor(schema, additional_properties=closing)
    for value in TAGGED:
        assert acceptor.value(value), value
    for value in UNTAGGED:
        assert not acceptor.value(value), value


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [CAT, DEFAULTED]},  # Pydantic's union without a discriminator, which needs no tag
        {"oneOf": [CAT, DEFAULTED], "$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"oneOf": [CAT, DOG]},  # without a default, no one says what an object without the key is
        {"oneOf": [CAT, {**DEFAULTED, "properties": {"kind": {"const": "cat", "default": "cat"}}}]},
        {"oneOf": [CAT, {**DEFAULTED, "properties": {"good": {"type": "boolean"}}}]},
        {"oneOf": [CAT, {**DEFAULTED, "properties": {"kind": True}}]},
        {"oneOf": [CAT, DEFAULTED, {"type": "null"}]},
        {"oneOf": [CAT]},
    ],
    ids=["anyOf", "a dialect", "no default", "one value", "no property", "any value", "no object", "no choice"],
)
def test_what_does_not_look_so_needs_no_tag(schema: dict[str, Any]) -> None:
    assert Acceptor(schema).value({"lives": 1})
