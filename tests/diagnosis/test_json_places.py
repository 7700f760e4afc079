"""Where the values of a JSON text are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm.diagnosis.json_places import last_begun, places, value_at
from dotllm.errors import Pointer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def values(value: Any, pointer: Pointer) -> dict[str, Any]:
    found = {pointer.path: value}
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            found |= values(child, pointer / key)
    return found


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_each_value_is_found(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = places(text)
    assert {pointer: json.loads(text[place.value : place.end]) for pointer, place in found.items()} == values(
        value, Pointer()
    )
    assert all(place.begin <= place.value for place in found.values())


@given(VALUES, st.data())
def test_a_text_that_is_cut_gives_what_stands_before(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    assert set(places(cut)) <= set(values(value, Pointer()))
    assert last_begun(cut) in values(value, Pointer())


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("", ""),
        ('{"a', ""),
        ('{"a": 1', "/a"),
        ('{"a": 1, "b', ""),
        ('{"a": [1, "x', "/a/1"),
        ('{"a": [1, 2]', "/a"),
        ('{"a/b": {"c": tr', "/a~1b/c"),
        ("nonsense", ""),
    ],
)
def test_the_value_begun_last(text: str, pointer: str) -> None:
    assert last_begun(text) == pointer


@pytest.mark.parametrize(
    ("text", "offset", "pointer"),
    [
        ("[1, 2]", 4, "/1"),
        ("[1, 2]", 1, "/0"),
        ('{"a": 5}', 6, "/a"),
        ('{"a": 5}', 7, "/a"),
        ('{"a": 5, "b": 1}', 9, ""),
        ("5", 0, ""),
        ("[[]]", 1, "/0"),
    ],
)
def test_the_value_of_a_character(text: str, offset: int, pointer: str) -> None:
    assert value_at(text, offset) == pointer
