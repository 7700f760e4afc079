"""Each wrong answer is in the class of its first mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dotllm.bench.quality import faults
from dotllm.bench.quality.cases import Call, Case, Function

BOOK = Function(
    "book",
    "",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "room": {"enum": ["single", "double"]},
            "nights": {"type": "integer"},
            "rate": {"type": "number"},
            "late": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "day": {"type": "string"},
            "extra": {"type": "object"},
        },
        "required": ["city", "room", "nights", "late", "names", "day", "extra"],
    },
)
WANTED: dict[str, list[Any]] = {
    "city": ["New York", "NYC"],
    "room": ["double"],
    "nights": [3],
    "rate": ["", 80],
    "late": [True],
    "names": [["Ana", "Bo"]],
    "day": ["2025-01-02"],
    "extra": [{"bed": ["extra", ""], "pets": [0]}],
}
RIGHT = {
    "city": "new york",
    "room": "double",
    "nights": 3.0,
    "late": True,
    "names": ["Ana", "Bo"],
    "day": "2025-01-02",
    "extra": {"bed": "extra", "pets": 0},
}
SAID = [{"role": "user", "content": "Ana and Bo want a double in New York for 3 nights from 2 January, not in Oslo."}]


def case(calls: int = 1) -> Case:
    return Case("1", "s", SAID, [BOOK], "calls", lambda calls: "", wanted=[("book", WANTED)] * calls)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"city": "Oslo"}, "string: another one of the question"),
        ({"city": "Paris"}, "string: not in the question"),
        ({"city": "New York City"}, "string: more, or less, than was wanted"),
        ({"city": " , "}, "string: nothing in it"),
        ({"room": "single"}, "enum: another member"),
        ({"nights": 2}, "number: another one of the question"),
        ({"nights": 7}, "number: not in the question"),
        ({"rate": 90}, "a property that nothing was said of"),
        ({"pets": 1}, "a property that nothing was said of"),
        ({"late": False}, "boolean: the other one"),
        ({"names": ["Ana"]}, "list: too few items"),
        ({"names": ["Ana", "Bo", "Cy"]}, "list: too many items"),
        ({"names": ["Ana", "Bo", "Bo"]}, "list: an item again and again"),
        ({"names": ["Ana", "Cy"]}, "list: other items"),
        ({"day": "2025-02-01"}, "string: another date"),
        ({"extra": {"bed": "none", "pets": 0}}, "object: another one"),
        ({"extra": {"pets": 0}}, ""),
        ({"rate": 80}, ""),
        ({"day": None}, "a property is missing"),
        ({"room": "single", "day": None}, "enum: another member"),
    ],
)
def test_the_first_difference(change: dict[str, Any], fault: str) -> None:
    arguments = {key: value for key, value in {**RIGHT, **change}.items() if value is not None}
    assert faults.fault_of_call(case(), Call("book", arguments), BOOK.parameters, ("book", WANTED))[1] == fault
    assert faults.class_of(case(), [Call("book", arguments)]) == (fault or faults.UNKNOWN)


def test_calls() -> None:
    right = Call("book", RIGHT)
    assert faults.class_of(case(2), [right]) == "too few calls"
    assert faults.class_of(case(), [right, right]) == "too many calls"
    assert faults.class_of(case(), [Call("other", RIGHT)]) == "another function"
    assert faults.class_of(case(2), [right, Call("book", {**RIGHT, "late": False})]) == "boolean: the other one"
    assert faults.class_of(case(), [Call("book", 3)]) == faults.UNKNOWN


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": [1, 2, 3, ', "cut: a list ran on"),
        ('[{"a": "x", ', "cut: a list ran on"),
        ('{"a": "xx\\"xx', "cut: a string ran on"),
        ('{"a": 1' + " " * 50, "cut: white space ran on"),
        ('{"a": ' + "1" * 30, "cut: a number ran on"),
        ('{"a": {"b": 1', "cut: in an object"),
        ("", "cut: a call"),
    ],
)
def test_what_a_cut_text_was_in(text: str, fault: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert faults.class_of_cut(text) == fault
