"""Values that occur in a text (``source``): which values are left; nothing else changes, and no answer is invalid."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from dotllm import Index
from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.json_schema.value_source import MAX_CHARACTERS, dates_in, numbers_in, parts_of
from tests.cases import few
from tests.languages.json_schema.random_schemas import random_document, random_schema
from tests.languages.json_schema.verdicts import Acceptor, byte_vocabulary

TEXT = "Invoice INV-3920: two desk lamps at 27.50.\nShip to Zoe\u0308 Kaya, 59 Mill\n  Lane, 92404 Oslo; rebate 8%."
STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        (STRING, ["Oslo", "desk lamps", "59 Mill Lane", "59 Mill\n  Lane", "Zoe\u0308 Kaya", "8%", "Lane, 92404 Oslo"], ["", "Osl", "slo", "oslo", "Paris", " Oslo", "Zoe", "lamps desk"]),
        # with further conditions of the schema
        ({**STRING, "maxLength": 4}, ["Oslo", "INV"], ["Invoice", "Paris"]),
        ({**STRING, "minLength": 5}, ["desk lamps"], ["Oslo", "Paris"]),
        ({**STRING, "pattern": "^[0-9]{5}$"}, ["92404"], ["12345", "3920"]),
        ({"type": ["string", "null"]}, ["Oslo", None], ["Paris"]),
        # members whose words occur in the text
        ({"enum": ["desk lamp", "desk_lamps", "OSLO", "Paris"]}, ["desk_lamps", "OSLO"], ["desk lamp", "Paris"]),
        ({"enum": ["mill", "Oslo", 8, 9, None]}, ["mill", "Oslo", 8, None], [9]),
        # numbers in the text (as digits, words and percentages) and in the schema
        ({"type": "number"}, [27.5, 2, 8, 0.08, 59, 3920], [1, 27, 28.5, -59]),
        ({"type": "integer"}, [2, 59], [1, 27]),
        ({"type": "integer", "default": 1, "description": "from 5 to 7"}, [2, 1, 5, 7], [6]),
        # values that the schema mentions
        ({**STRING, "default": "miles", "examples": ["feet"], "description": "or 'km', \"yards\", `inches`; the user's own"}, ["miles", "feet", "km", "yards", "inches", "Oslo"], ["metres", "own", "s own"]),
        ({**STRING, "pattern": "^m", "default": "miles"}, ["miles", "mxx"], ["Oslo"]),
        ({**STRING, "pattern": "^d", "default": "done"}, ["done", "desk lamps"], ["dxx", "Oslo"]),
        # if the text has nothing that the schema allows, the schema is unchanged
        ({**STRING, "format": "date"}, ["2026-11-28"], ["Oslo"]),
        ({"enum": ["red", "blue"]}, ["red", "blue"], []),
        ({"const": "fixed"}, ["fixed"], []),
        ({**STRING, "minLength": 500}, ["x" * 500], ["Oslo"]),
        ({"type": "integer", "minimum": 100_000}, [123_456], [59]),
        ({"type": "integer", "minimum": 100_000, "description": "mostly 7"}, [123_456], []),
        ({"type": "boolean"}, [True, False], []),
        # inside arrays and objects
        ({"type": "array", "items": STRING}, [["Oslo", "Oslo"], []], [["Paris"]]),
        ({"type": "object", "additionalProperties": STRING}, [{"any": "Oslo"}], [{"any": "Paris"}]),
        ({}, ["Oslo", ["Oslo"], {"k": 59}], ["Paris", {"k": "Paris"}, [58]]),
        # negated schemas are not narrowed
        ({**STRING, "not": {"enum": ["Oslo"]}}, ["Kaya"], ["Oslo", "Paris"]),
        ({"type": "object", "properties": {"a": STRING}, "not": {"properties": {"a": {"const": "Oslo"}}}}, [{"a": "Kaya"}], [{"a": "Oslo"}]),
    ],
)  # fmt: skip
def test_what_is_left(schema: dict[str, Any], allowed: list[Any], refused: list[Any]) -> None:
    document = Acceptor(schema, source=TEXT)
    assert [value for value in allowed if not document.value(value)] == []
    assert [value for value in refused if document.value(value)] == []


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("the 3rd of May 2026", {"2026-05-03"}),
        ("Dec. 5, 2025 at 10:30", {"2025-12-05", "2025-12-10", "2025-12-30"}),
        ("31 April 2026", set()),
        ("04/03/2026", {"2026-03-04", "2026-04-03", "2026-04-04", "2026-03-03"}),
        ("2026-11-28", {"2026-11-28", "2026-11-11"}),
        ("3 lamps in 2026", set()),
        ("maybe 3 of 2026", set()),
    ],
)
def test_dates_of_a_text(text: str, dates: set[str]) -> None:
    assert dates_in(text) == dates
    for schema in ({**STRING, "format": "date"}, STRING):
        document = Acceptor(schema, source=text)
        assert all(document.value(date) for date in dates)
        assert document.value("1999-01-02") is (not dates and "format" in schema)


def test_words_of_scripts_without_spaces() -> None:
    document = Acceptor(STRING, source="我想在肯德基买10个麦辣鸡腿堡")
    assert document.value("肯德基") and document.value("麦辣鸡腿堡") and document.value("10")
    assert not document.value("1") and not document.value("麦当劳")


@pytest.mark.parametrize("seed", range(few(4)))
def test_copies_are_what_a_search_finds(seed: int) -> None:
    draw = Random(seed)
    text = "".join(draw.choice("ab c-1\n") for _ in range(40)).strip() or "a"
    found = parts_of(text)
    joined = re.sub(r"\s+", " ", text)
    inner = range(1, len(joined))
    edges = {0, len(joined), *(i for i in inner if not (joined[i - 1].isalnum() and joined[i].isalnum()))}
    wanted = {joined[a:b] for a in edges for b in edges if a < b and joined[a:b] == joined[a:b].strip()}
    assert all(found.contains(part) for part in wanted)
    for _ in range(300):
        a, b = sorted((draw.randrange(len(joined) + 1), draw.randrange(len(joined) + 1)))
        assert found.contains(joined[a:b]) is (joined[a:b] in wanted), (text, joined[a:b])


def test_numbers_of_a_text() -> None:
    text = "$20,000 for twenty days at 3,5 or 1.5e-3; -4 to the 5th of 2025-11-20, 1.2 million, a hundred, 1e999"
    found = set(map(float, numbers_in(text)))
    assert found >= {20_000, 3.5, 0.0015, -4, 5, 2025, 11, 20, 1_200_000, 100}
    assert not found & {4, -11, 25}


@pytest.mark.parametrize("seed", range(few(40)))
def test_no_invalid_document_comes_in(seed: int) -> None:
    """Random schemas and walks: what can be written with a source can be written without it, and is valid."""
    draw = Random(seed)
    schema = random_schema(draw)
    try:
        plain = Acceptor(schema)
    except SpecError:
        return
    try:
        sourced = Acceptor(schema, source="one two 3 a b 0 x-1 true")
    except UnsupportedError as error:
        assert "uniqueItems" in str(error) and "uniqueItems" in json.dumps(schema)
        return
    validator = Draft202012Validator(schema)
    for _ in range(30):
        text = json.dumps(random_document(draw))
        assert plain.text(text) or not sourced.text(text)
    for _ in range(5):
        written = walked(sourced.index, draw)
        if written is not None:
            assert plain.text(written), written
            assert validator.is_valid(json.loads(written)), written


def walked(index: Index, draw: Random) -> bytes | None:
    """A document from a random walk; None if the walk does not end soon."""
    guide, data = index.guide(), bytearray()
    row = np.zeros((1, -(-byte_vocabulary().size // 32)), np.int32)
    for _ in range(400):
        guide.write_mask(row, 0)
        allowed = [t for t in range(257) if row[0, t >> 5] >> (t & 31) & 1]
        assert allowed, bytes(data)
        token = 256 if 256 in allowed and draw.random() < 0.7 else draw.choice([t for t in allowed if t < 256] or [256])
        if token == 256:
            return bytes(data)
        assert guide.advance(token)
        data.append(token)
    return None


@pytest.mark.parametrize("source", ["", " \n", "\ud800", 7])
def test_a_source_has_something_in_it(source: Any) -> None:
    with pytest.raises(InvalidSpecError) as error:
        Index.from_json_schema(STRING, byte_vocabulary(), source=source)
    assert error.value.keyword == "source"


@pytest.mark.parametrize("source", ["a" * (MAX_CHARACTERS + 1), "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))])
def test_long_sources_are_refused(source: str) -> None:
    with pytest.raises(BudgetExceededError) as error:
        Index.from_json_schema(STRING, byte_vocabulary(), source=source)
    assert error.value.keyword == "source" and "part of the text" in (error.value.help or "")


def test_unique_items_are_refused_beside_a_source() -> None:
    with pytest.raises(UnsupportedError, match="source"):
        Index.from_json_schema({"type": "array", "items": STRING, "uniqueItems": True}, byte_vocabulary(), source=TEXT)


@pytest.mark.parametrize("style", ["qwen_xml", "minimax_xml", "deepseek_xml", "glm_xml"])
def test_values_of_calls_in_other_styles(style: str) -> None:
    schema = {"type": "object", "properties": {"city": STRING}, "required": ["city"], "additionalProperties": False}
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, "style": style}}
    free, sourced = (Index.from_structural_tag(tag, byte_vocabulary(), **options) for options in ({}, {"source": TEXT}))
    written = walked(sourced, Random(1))
    assert written is not None and written.decode()
    assert free.can_finish(free.advance_bytes(free.guide().config, written))
    for seed in range(few(20)):
        other = walked(free, Random(seed))
        if other is not None and not any(word in other.decode(errors="replace") for word in ("Oslo", "59", "INV")):
            assert sourced.advance_bytes(sourced.guide().config, other) < 0 or b"Kaya" in other
