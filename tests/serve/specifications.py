"""Specifications for the server tests, each with an independent judge: ``re``, equality, ``jsonschema``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonschema


class Case(NamedTuple):
    """``body``: the constraint, as fields of an OpenAI request. ``judge`` raises if the answer is wrong."""

    name: str
    body: dict[str, Any]
    judge: Callable[[str], None]

    def offline(self) -> dict[str, Any]:
        """The same constraint for vLLM's ``StructuredOutputsParams``."""
        if "structured_outputs" in self.body:
            return dict(self.body["structured_outputs"])
        return {"json": self.body["response_format"]["json_schema"]["schema"], "disable_any_whitespace": True}


def _regex(name: str, pattern: str) -> Case:
    def judge(answer: str) -> None:
        assert re.fullmatch(pattern, answer), f"{answer!r} does not match {pattern!r}"

    return Case(name, {"structured_outputs": {"regex": pattern}}, judge)


def _choice(name: str, choices: list[str]) -> Case:
    def judge(answer: str) -> None:
        assert answer in choices, f"{answer!r} is not a choice"

    return Case(name, {"structured_outputs": {"choice": choices}}, judge)


def _schema(name: str, schema: dict[str, Any], *, by_response_format: bool = True) -> Case:
    def judge(answer: str) -> None:
        document = json.loads(answer, parse_constant=_no_constants)
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)
        assert answer == answer.strip(" \t\r\n"), f"white space around the document: {answer!r}"

    body: dict[str, Any] = {"structured_outputs": {"json": schema}}
    if by_response_format:
        body = {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}
    return Case(name, body, judge)


def _no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _object(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
        **more,
    }


SHORT = {"type": "string", "maxLength": 12}
LEVEL = {"enum": ["low", "mid", "high"]}
TREE = {
    "$defs": {
        "node": _object({"name": {"enum": ["leaf", "node"]}, "left": {"$ref": "#/$defs/leaf"}}, ["name"]),
        "leaf": _object({"name": {"const": "leaf"}}),
    },
    "$ref": "#/$defs/node",
}

CASES: list[Case] = [
    _regex("date", r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    _regex("phone", r"\+[1-9][0-9]{0,2}( [0-9]{2,4}){2,3}"),
    _regex("email", r"[a-z0-9._]{1,20}@[a-z0-9]{1,12}\.(com|org|net)"),
    _regex("uuid", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    _regex("alternatives that extend one another", r"a(bc)?|abcd{2,5}|(x|xy|xyz)"),
    _regex("letters beyond ASCII", r"[à-ÿ]{3,8} [Ѐ-ӿ]{2,5} [一-龥]{1,4}"),
    _regex("any character", r".{1,40}"),
    _regex("counters", r"([a-c]{2,5},){3,6}end"),
    _regex("look-ahead", r"(?=.*[0-9])[a-z0-9]{4,10}"),
    _regex("case-insensitive", r"(?i)yes|no|maybe"),
    _choice("two words", ["yes", "no"]),
    _choice("one a prefix of another", ["in", "inter", "international", "internationalisation"]),
    _choice("quotes, newlines, emoji", ['say "hi"', "two\nlines", "🙂🙃", " leading", "\t"]),
    _choice("a thousand", [f"option-{number:04d}" for number in range(1000)]),
    _schema("flat", _object({"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "level": LEVEL})),
    _schema("optional", _object({"a": LEVEL, "b": {"type": "boolean"}, "c": {"type": "null"}}, ["b"])),
    _schema("numbers", _object({"i": {"type": "integer", "minimum": -5, "exclusiveMaximum": 17}, "one": {"const": 1}})),
    _schema("array", {"type": "array", "items": LEVEL, "minItems": 2, "maxItems": 5}),
    _schema("tuple", {"type": "array", "prefixItems": [LEVEL, {"type": "boolean"}], "items": False, "minItems": 2}),
    _schema(
        "nested", _object({"user": _object({"name": SHORT, "tags": {"type": "array", "items": SHORT, "maxItems": 3}})})
    ),
    _schema("pattern and length", {"type": "string", "pattern": "^[A-Z][a-z]+", "minLength": 3, "maxLength": 9}),
    _schema("union", {"anyOf": [LEVEL, {"type": "integer", "minimum": 1, "maximum": 3}, _object({"k": LEVEL})]}),
    _schema("intersection", {"allOf": [{"type": "string", "maxLength": 6}, {"pattern": "^a"}]}),
    _schema("references", TREE),
    _schema(
        "enum of everything", {"enum": [None, True, 1.5, "é\n", [1, {"a": 2}], {"b": []}]}, by_response_format=False
    ),
    _schema(
        "no tag twice",
        {
            "type": "array",
            "items": {"type": "string", "pattern": "^([ab]|[a-c]{8})$"},
            "minItems": 3,
            "maxItems": 6,
            "uniqueItems": True,
        },
    ),
]
