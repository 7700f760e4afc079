"""Numbers that are read as finite ones: judged by Python's reader of JSON, and by the same sets without the condition."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm import Index, Vocabulary
from dotllm.grammar import Grammar
from dotllm.grammar.reference import accepts
from dotllm.languages.json_schema.build import schema_expression
from dotllm.languages.json_schema.options import Options

BYTES = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])
SCHEMAS: list[Any] = [
    {"type": "number"}, {"type": "integer"}, {"type": "number", "minimum": 0}, {"type": "number", "minimum": 5},
    {"type": "number", "exclusiveMaximum": 0.5}, {"type": "number", "multipleOf": 0.01},
    {"type": "number", "multipleOf": 7}, {"not": {"type": "integer"}, "type": "number"}, {"const": 10**300},
    {"enum": [1, 2.5, 1e22, 1e-7]}, {"type": ["number", "string"]}, {},
]  # fmt: skip
LONGEST = "9" * 40 + "." + "9" * 400 + "e199"
RULE = re.compile(r"-?[0-9]+|-?[0-9]{1,40}(\.[0-9]+)?([eE](\+?([01]?[0-9])?[0-9]|-[0-9]{1,3}))?")


def acceptor(schema: Any, *, finite: bool = True) -> Callable[[str], bool]:
    grammar = Grammar()
    grammar.start = schema_expression(schema, grammar, Options(any_whitespace=False, finite_numbers=finite))
    return lambda text: accepts(grammar, text.encode())


def is_finite(text: str) -> bool:
    value = json.loads(text)
    return isinstance(value, int) or math.isfinite(value)


def test_ordinary_numbers_stay() -> None:
    inside = acceptor({"type": "number"})
    ordinary = "0 -0 7 1.5 -0.001 1.5e10 1E+05 1e-07 -2.5e-10 12.75e3 10e6 6.02e23 1e100 1e199 0e0 5e-324 0.5e-3"
    assert [text for text in ordinary.split() if not inside(text)] == []


def test_integers_of_any_length_stay() -> None:
    for schema in ({"type": "integer"}, {"type": "number"}, {"type": "number", "minimum": 5}):
        inside = acceptor(schema)
        assert all(map(inside, ("12345678901234567890", "9" * 39, "9" * 40, "9" * 41, "1" + "0" * 400)))


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e308", "1e309", "9" * 309 + ".5", "9" * 300 + "e10", "0e99999"])
def test_numbers_out_of_range_are_left_out(text: str) -> None:
    for schema in ({"type": "number"}, {}, {"type": "number", "maximum": 5}, {"type": "number", "minimum": -5}):
        assert not acceptor(schema)(text)
        assert not acceptor({"type": "array", "items": schema})(f"[{text}]")


def test_the_greatest_is_finite() -> None:
    inside = acceptor({"type": "number"})
    for text in (LONGEST, LONGEST.replace("e", "E+")):
        assert inside(text) and is_finite(text)
    assert not inside(LONGEST.replace("199", "200")) and not inside("9" + LONGEST)


_DIGITS = st.text("019", min_size=1, max_size=4) | st.integers(35, 45).map(lambda n: "9" * n)
_TEXTS = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-"]),
    st.just("0") | _DIGITS.map(lambda digits: "5" + digits[1:]),
    st.just("") | _DIGITS.map(lambda digits: f".{digits}"),
    st.just("")
    | st.builds(
        lambda mark, digits: mark + digits, st.sampled_from(["e", "E+", "e-"]), st.text("0129", min_size=1, max_size=4)
    ),
)


@settings(max_examples=300)
@given(text=_TEXTS, schema=st.sampled_from(SCHEMAS))
def test_the_rest_is_what_the_schema_says(text: str, schema: Any) -> None:
    """Of a set with numbers in any notation exactly the texts of the rule are left; single values keep more."""
    plain, finite = acceptor(schema, finite=False)(text), acceptor(schema)(text)
    assert not finite or (plain and is_finite(text))
    if "const" not in schema and "enum" not in schema:
        assert finite == (plain and RULE.fullmatch(text) is not None)


def test_single_values() -> None:
    inside = acceptor({"enum": [10**300, 1e300, 10**400]})
    assert inside("1" + "0" * 300) and inside("1e+300") and inside("1" + "0" * 400) and not inside("1e400")


def test_without_the_option_nothing_changes() -> None:
    index = Index.from_json_schema({"type": "number"}, BYTES)
    assert index.guide().accepts([*b"1e400"]) == 5


def test_structural_tags_have_it_for_each_schema() -> None:
    def index(**fields: Any) -> Index:
        schema = {"type": "object", "properties": {"v": {"type": "number"}}, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {**schema, "required": ["v"]}, **fields}
        tag = json.dumps({"type": "structural_tag", "format": form})
        return Index.from_structural_tag(tag, BYTES, any_whitespace=False)

    styles = {"json": b'{"v":', "qwen_xml": b"<parameter=v>", "cohere_xml": b'<cofl:value name="v" type="json">'}
    for style, before in styles.items():
        free, finite = index(style=style).guide(), index(style=style, finite_numbers=True).guide()
        for number, whole in ((b"1e400", False), (b"1.5e10", True)):
            text = [*before, *number]
            assert free.accepts(text) == len(text)
            assert (finite.accepts(text) == len(text)) is whole
