"""Misspelt keywords are named with their place; keywords that mean something never are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dotllm.languages.json_schema.reading.unknown_keywords import unknown_keywords

CASES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"type": "string", "maxlength": 5}, [("/maxlength", "did you mean \"maxLength\"?")]),
    ({"requierd": ["name"]}, [("/requierd", "did you mean \"required\"?")]),
    ({"properties": {"a/b": {"min_length": 1}}}, [("/properties/a~1b/min_length", "did you mean \"minLength\"?")]),
    ({"anyOf": [{"nullable": True}, {"items": [{"pattren": "x"}]}]},
     [("/anyOf/0/nullable", "OpenAPI"), ("/anyOf/1/items/0/pattren", "did you mean \"pattern\"?")]),
    ({"type": "string", "format": "Date-Time"}, [("/format", "did you mean \"date-time\"?")]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [True]}, [("/prefixItems", "draft-07")]),
    ({"$defs": {"x": {"zzz": 1}}}, [("/$defs/x/zzz", "no keyword")]),
    ({"properties": {"requierd": {"type": "string"}}}, []),  # a name, no keyword
    ({"enum": [{"requierd": 1}], "default": {"maxlength": 2}, "const": {"x": {"y": 1}}}, []),  # values
    ({"x-order": 1, "title": "t", "$comment": "c", "deprecated": True, "contentEncoding": "base64"}, []),
    ({"dependencies": {"a": ["b"], "c": {"minimun": 1}}}, [("/dependencies/c/minimun", "did you mean \"minimum\"?")]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), CASES)
def test_cases(schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = list(unknown_keywords(schema))
    assert [warning.pointer for warning in found] == [pointer for pointer, _ in expected]
    assert all(part in warning.message for warning, (_, part) in zip(found, expected, strict=True))


def test_the_official_suite_uses_no_unknown_keyword(shared_data: Path | None) -> None:
    """An oracle for the list of keywords: but for files about unknown ones, and for remote or made-up vocabularies."""
    if shared_data is None:
        pytest.skip("the suite is not at hand")
    files = sorted((shared_data / "json-schema-test-suite/tests/draft2020-12").glob("*.json"))
    seen = 0
    for file in files:
        if file.stem in ("unknownKeyword", "vocabulary", "format", "ref", "anchor", "id", "not", "enum", "const"):
            continue
        for group in json.loads(file.read_text()):
            seen += 1
            wrong = [warning for warning in unknown_keywords(group["schema"]) if "no keyword" in warning.message]
            assert not wrong, f"{file.name}: {group['description']}"
    assert seen > 200


def test_deep_and_wide_schemas_are_walked_in_a_moment(shared_data: Path | None) -> None:
    deep: dict[str, Any] = {}
    for _ in range(50_000):
        deep = {"not": deep}
    assert not list(unknown_keywords(deep))
    if shared_data is not None:
        with gzip.open(shared_data / "maskbench-open.jsonl.gz", "rt") as lines:
            for _, line in zip(range(300), lines, strict=False):
                list(unknown_keywords(json.loads(line)["schema"]))
