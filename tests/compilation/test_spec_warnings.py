"""Warnings about a specification: `dotllm check` prints them, and a server's answer has them in its header."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import pytest

from dotllm.compilation import Kind, Specification, spec_warnings
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS

MISSPELT = {"type": "object", "requierd": ["a"], "properties": {"a": {"type": "string", "format": "emial"}}}


def specification(schema: Any, kind: Kind = Kind.JSON_SCHEMA) -> Specification:
    return Specification.from_value(kind, schema)


def test_keywords_and_advice_with_their_places() -> None:
    first, second = spec_warnings.texts(specification(MISSPELT))
    assert first.startswith("'requierd' is not a keyword") and first.endswith("(at /requierd)")
    assert "'emial'" in second and second.endswith("(at /properties/a/format)")
    late = {"type": "object", "properties": {"answer": {"type": "string"}, "reasoning": {"type": "string"}}}
    [text] = spec_warnings.texts(specification(late))
    assert "'reasoning' comes after 'answer'" in text
    [text] = spec_warnings.texts(specification(["a", "ab"], Kind.CHOICE))
    assert "'a' is the beginning of 'ab'" in text


@pytest.mark.parametrize("kind", [Kind.REGEX, Kind.GRAMMAR, Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG])
def test_what_is_right_or_refused_is_not_warned_of(kind: Kind) -> None:
    for text in ("a+", "{", "[" * 100_000, "true", '{"type": "object"}'):
        assert spec_warnings.texts(Specification.create(kind, text)) == ()


def test_schemas_in_a_structural_tag() -> None:
    content = {"type": "json_schema", "json_schema": {"properties": {"json_schema": {"maxLenght": 1}}}}
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [content, {"type": "any_text"}]}}
    [text] = spec_warnings.texts(specification(tag, Kind.STRUCTURAL_TAG))
    assert text.endswith("(at /format/elements/0/json_schema/properties/json_schema/maxLenght)")


def test_many_are_cut() -> None:
    schema = {"properties": {f"p{i}": {"maxLenght": 1} for i in range(100_000)}}
    found = spec_warnings.texts(specification(schema))
    assert len(found) == spec_warnings.MOST + 1 and found[-1] == spec_warnings.MORE
    exactly = {"properties": {f"p{i}": {"maxLenght": 1} for i in range(spec_warnings.MOST)}}
    assert len(spec_warnings.texts(specification(exactly))) == spec_warnings.MOST


def test_whatever_a_schema_holds_its_warnings_are_texts() -> None:
    """The compiler refuses malformed keywords; warnings must not fail on them."""
    source = random.Random(3)
    names = sorted(
        {name for known in ASSERTIONS.values() for name in known} | {"$schema", "requierd", "json_schema", "x"}
    )
    leaves = [None, True, False, 0, -1, 1.5, 10**40, "", "string", "emial", "http://x", "#", "a\ud800", "\x7f"]

    def value(depth: int) -> Any:
        kind = source.randrange(10) if depth < 5 else 9
        if kind < 4:
            return {source.choice(names): value(depth + 1) for _ in range(source.randrange(5))}
        return [value(depth + 1) for _ in range(source.randrange(4))] if kind < 6 else source.choice(leaves)

    warned = 0
    for _ in range(3000):
        schema = value(0)
        tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
        for kind, document in ((Kind.JSON_SCHEMA, schema), (Kind.STRUCTURAL_TAG, tag)):
            text = document if isinstance(document, str) else json.dumps(document)
            warned += bool(spec_warnings.texts(Specification.create(kind, text)))
    assert warned > 300


def test_a_loop_waits_a_moment_and_the_next_request_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, texts = threading.Event(), spec_warnings.texts
    monkeypatch.setattr(spec_warnings, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(spec_warnings, "texts", lambda one: go_on.wait(60) and texts(one))
    slow = specification({**MISSPELT, "title": "slow"})

    async def ask() -> tuple[str, ...]:
        return await spec_warnings.texts_beside(slow)

    try:
        assert asyncio.run(ask()) == ()
    finally:
        go_on.set()
    monkeypatch.setattr(spec_warnings, "TIMEOUT_S", 60)
    assert len(asyncio.run(ask())) == 2
    monkeypatch.setattr(spec_warnings, "_find", lambda *_: pytest.fail("found twice"))
    assert len(asyncio.run(ask())) == 2


def test_check_and_the_server_say_the_same() -> None:
    from dotllm.cli.verdicts import judge
    from dotllm.compilation.inputs import Input
    from dotllm.diagnosis.why import byte_vocabulary

    schema = {**MISSPELT, "additionalProperties": False}
    verdict = judge(Input("x", specification(schema), json.dumps(schema)), byte_vocabulary()).verdict
    said = [f"{one['message']} (at {one['pointer']})" for one in (*verdict.warnings, *verdict.advice)]
    assert said == [*spec_warnings.texts(specification(schema))] and said
