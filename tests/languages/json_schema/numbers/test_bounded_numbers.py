"""Bounded numbers: judged by Python's JSON reader (doubles, and integers of at most 4,300 digits), and by the same sets
without bounded digits."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm import Index, Vocabulary
from dotllm.diagnosis.why import explain_schema
from dotllm.errors import InvalidSpecError
from tests.cases import few

BYTES = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])
SCHEMAS: list[dict[str, Any]] = [
    {"type": "number"}, {"type": "integer"}, {"type": "number", "minimum": 0}, {"type": "number", "minimum": 5},
    {"type": "number", "exclusiveMaximum": 0.5}, {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"type": "number", "exclusiveMaximum": 0},
    {"type": "number", "exclusiveMinimum": 0.1, "maximum": 1e300}, {"type": "number", "not": {"const": 1}},
    {"type": "number", "exclusiveMinimum": -1e308}, {"type": "number", "exclusiveMaximum": 1e16},
    {"type": "number", "exclusiveMaximum": 2**53}, {"type": "number", "not": {"enum": [0, 0.3]}},
    {"type": "number", "minimum": 1e-310, "maximum": 1e-300}, {"type": "number", "exclusiveMaximum": 5e-324},
]  # fmt: skip


def acceptor(schema: Any, *, bounded: bool = True) -> Callable[[str], bool]:
    index = _index(json.dumps(schema), "bounded" if bounded else "any")
    return lambda text: index.guide().accepts([*text.encode(), 256]) == len(text) + 1


@cache
def _index(schema: str, digits: Literal["bounded", "any"]) -> Index:
    """Thousands of examples use a few indexes."""
    return Index.from_json_schema(schema, BYTES, number_digits=digits)


def read(text: str) -> int | float | None:
    """The number as Python reads it; None if Python refuses it or reads something that is not a JSON number."""
    try:
        value: int | float = json.loads(text)
    except ValueError:  # more than 4,300 digits
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def is_valid(value: float, schema: dict[str, Any]) -> bool:
    """Whether a reader's number satisfies the schema, whose bounds are also as the reader reads them."""
    excluded = schema.get("not", {})
    return (
        (schema["type"] == "number" or isinstance(value, int))
        and schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
        and value not in excluded.get("enum", [excluded.get("const")])
    )


def test_ordinary_numbers_stay() -> None:
    inside = acceptor({"type": "number"})
    ordinary = "0 -0 7 1.5 -0.001 1.5e10 1E+05 1e-07 -2.5e-10 12.75e3 10e6 6.02e23 1e100 10e199 0e0 5e-300 0.5e-3"
    assert [text for text in ordinary.split() if not inside(text)] == []
    assert all(map(inside, ("9" * 64, "-" + "9" * 64, "0." + "1" * 62, "1e307", "9.99e+307", "1e-307")))


def test_doubles_are_spelled_as_python_does() -> None:
    """All but the largest and the smallest of them, with exponents of 308 and -308."""
    chance = random.Random(5)
    inside = acceptor({"type": "number"})
    for _ in range(300):
        value = chance.choice([1, -1]) * chance.random() * 10.0 ** chance.randrange(-300, 308)
        assert inside(json.dumps(value)), value


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_runs_on_is_left_out(schema: dict[str, Any]) -> None:
    inside = acceptor(schema)
    for text in ("1" * 320, "0." + "3" * 400, "1e400", "-1e400", "1e99999", "0e" + "0" * 400, "5." + "0" * 400):
        assert not inside(text), text


def test_schemas_ask_for_more() -> None:
    assert acceptor({"type": "integer", "minimum": 10**100})("1" + "0" * 100)
    assert acceptor({"type": "integer", "maximum": 10**100})("9" * 100)
    assert acceptor({"type": "number", "minimum": 10**80, "maximum": 10**90})("5" + "0" * 85)
    assert acceptor({"type": "number", "multipleOf": 1e-70})("0." + "3" * 70)
    assert acceptor({"const": 10**400})("1" + "0" * 400)
    assert acceptor({"enum": [10**300, 1e300, 10**400]})("1e+300") and not acceptor({"enum": [10**400]})("1e+400")
    assert acceptor({"type": "number", "maximum": sys.float_info.max})("1.7976931348623157e+308")
    assert not acceptor({"type": "number", "maximum": 1e308})("1.1e308")
    assert acceptor({"type": "integer", "multipleOf": 10**70, "minimum": 1})("1" + "0" * 70)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"exclusiveMinimum": 0}, "7E-76577"), ({"exclusiveMinimum": 0}, "1e-324"),
        ({"exclusiveMinimum": 0}, "0." + "0" * 400 + "1"), ({"exclusiveMaximum": 0}, "-1e-400"),
        ({"exclusiveMaximum": 1}, "0." + "9" * 30), ({"exclusiveMaximum": 1}, "9.99999999999999999999999e-1"),
        ({"exclusiveMinimum": 1}, "1." + "0" * 20 + "1"), ({"exclusiveMinimum": 0.1}, "0.10000000000000000001"),
        ({"not": {"const": 1}}, "1." + "0" * 20 + "1"), ({"not": {"enum": [0]}}, "1e-400"),
        ({"not": {"multipleOf": 1}}, "1." + "0" * 20 + "1"), ({"not": {"type": "integer"}}, "3." + "0" * 30 + "2"),
        ({"exclusiveMinimum": 0, "maximum": 1e-300}, "1e-330"),
    ],
)  # fmt: skip
def test_what_is_read_as_the_excluded_number_is_left_out(schema: dict[str, Any], text: str) -> None:
    schema = {"type": "number", **schema}
    assert acceptor(schema, bounded=False)(text) and not acceptor(schema)(text)


_DIGITS = st.text("0159", min_size=1, max_size=4) | st.integers(10, 70).map(lambda n: "9" * n)
_TEXTS = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-"]),
    st.just("0") | _DIGITS.map(lambda digits: "5" + digits[1:]) | st.just("1"),
    st.just("") | (_DIGITS | st.integers(0, 60).map(lambda n: "0" * n + "1")).map(lambda digits: f".{digits}"),
    st.just("")
    | st.builds(
        lambda mark, digits: mark + digits, st.sampled_from(["e", "E+", "e-"]), st.text("01239", min_size=1, max_size=4)
    ),
)


@settings(max_examples=few(1500))
@given(text=_TEXTS, schema=st.sampled_from(SCHEMAS))
def test_what_is_allowed_is_read_as_a_member(text: str, schema: dict[str, Any]) -> None:
    allowed, exact = acceptor(schema)(text), acceptor(schema, bounded=False)(text)
    value = read(text)
    assert not allowed or exact
    if allowed:
        assert value is not None and is_valid(value, schema), value


@settings(max_examples=few(600))
@given(value=st.floats(-1e306, 1e306).filter(lambda x: x == 0 or abs(x) > 1e-300), schema=st.sampled_from(SCHEMAS))
def test_every_double_of_a_set_can_be_written(value: float, schema: dict[str, Any]) -> None:
    """Also next to an exclusive bound, where texts that are read as the bound are left out."""
    ends = [float(schema[name]) for name in ("exclusiveMinimum", "exclusiveMaximum", "minimum") if name in schema]
    near = [math.nextafter(end, to) for end in ends for to in (-math.inf, math.inf)]
    inside = acceptor(schema)
    for one in [value + 0.0, *(x for x in near if x == 0 or 1e-300 < abs(x) < 1e306)]:
        written = json.dumps(int(one)) if schema["type"] == "integer" else json.dumps(one)
        if len(written) <= 64:
            assert inside(written) == (is_valid(json.loads(written), schema) and _is_exact(written, schema)), written


def _is_exact(text: str, schema: dict[str, Any]) -> bool:
    """Whether the decimal itself is within the bounds (the shortest decimal for a double may lie outside them)."""
    value = Fraction(Decimal(text))
    low, high = schema.get("minimum"), schema.get("maximum")
    return (low is None or Fraction(Decimal(repr(low))) <= value) and (
        high is None or value <= Fraction(Decimal(repr(high)))
    )


def test_no_double_between_the_ends() -> None:
    with pytest.raises(InvalidSpecError, match="nothing satisfies"):
        acceptor({"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": math.nextafter(0.1, 1)})


def test_any_digits_lifts_it() -> None:
    index = Index.from_json_schema({"type": "number"}, BYTES, number_digits="any")
    assert index.guide().accepts([*b"1e400"]) == 5
    assert index.guide().accepts([*b"1" * 5000]) == 5000
    assert Index.from_json_object(BYTES, number_digits="any").guide().accepts([*b'{"a": 1e400}']) == 12
    assert Index.from_json_object(BYTES).guide().accepts([*b'{"a": 1e400}']) < 12
    with pytest.raises(InvalidSpecError, match="number_digits must be one of"):
        Index.from_json_schema({}, BYTES, number_digits="few")  # type: ignore[arg-type]


def test_a_document_with_too_long_a_number_is_told_why() -> None:
    why = explain_schema({"type": "array", "items": {"type": "integer"}}, f"[1, {'7' * 70}]")
    assert why is not None and (why.offset, why.pointer) == (68, "/1")
    assert "longer than readers accept" in why.reason and 'number_digits="any"' in why.help


def test_structural_tags_have_it_for_each_schema() -> None:
    """Tool calls ask for ``finite_numbers``; it applies even if any digits are allowed elsewhere."""

    def index(**fields: Any) -> Index:
        schema = {"type": "object", "properties": {"v": {"type": "number"}}, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {**schema, "required": ["v"]}, **fields}
        tag = json.dumps({"type": "structural_tag", "format": form})
        return Index.from_structural_tag(tag, BYTES, any_whitespace=False, number_digits="any")

    styles = {"json": b'{"v":', "qwen_xml": b"<parameter=v>", "cohere_xml": b'<cofl:value name="v" type="json">'}
    for style, before in styles.items():
        free, finite = index(style=style).guide(), index(style=style, finite_numbers=True).guide()
        for number, whole in ((b"1e400", False), (b"1.5e10", True)):
            text = [*before, *number]
            assert free.accepts(text) == len(text)
            assert (finite.accepts(text) == len(text)) is whole


@pytest.mark.parametrize(
    "schema",
    [
        {"maximum": -1e308, "not": {"multipleOf": 1}}, {"minimum": 1e308, "not": {"multipleOf": 1}},
        {"exclusiveMaximum": -1e308, "not": {"multipleOf": 0.5}, "multipleOf": 1e-9},
        {"not": {"anyOf": [{"multipleOf": 3}, {"minimum": -1e308, "maximum": 1e308}]}},
    ],
)  # fmt: skip
def test_what_is_no_multiple_is_finite(schema: dict[str, Any]) -> None:
    takes = acceptor({"type": "number", **schema})
    for sign in ("", "-"):
        assert not takes(f"{sign}2{'0' * 308}.1") and not takes(f"{sign}{'9' * 309}.1")
    assert any(takes(f"{sign}1{'1' * 308}.1") for sign in ("", "-"))


@pytest.mark.parametrize(
    "schema",
    [
        {"minimum": 1e308}, {"maximum": -1e308}, {"minimum": 1e308, "multipleOf": 3}, {"exclusiveMinimum": 1e300},
        {"minimum": 1e308, "not": {"const": 10**308}}, {"minimum": 10**308, "maximum": 10**309}, {"minimum": 1e307},
    ],
)  # fmt: skip
def test_integers_are_finite_as_doubles(schema: dict[str, Any]) -> None:
    """JavaScript reads 9e308 in plain digits as Infinity."""
    accepts = acceptor({"type": "integer", **schema})
    sign = "-" if "maximum" in schema and "minimum" not in schema else ""
    assert (
        accepts(f"{sign}1{'2' * 306}11") and not accepts(f"{sign}18{'0' * 307}") and not accepts(f"{sign}9{'0' * 309}")
    )


def test_integers_that_the_schema_wants_beyond_doubles_stay() -> None:
    assert acceptor({"type": "integer", "minimum": 10**400})("1" + "0" * 400)
    assert acceptor({"type": "integer", "const": 10**400})("1" + "0" * 400)
