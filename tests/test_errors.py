"""Where a refusal says that the fault lies."""

from __future__ import annotations

import pytest

from dotllm.errors import BudgetExceeded, LineColumn, Location, Offset, Pointer


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Pointer(), "/"),
        (Pointer() / "a" / 3, "/a/3"),
        (Pointer() / "a/b~c", "/a~1b~0c"),
        (Offset(7), "offset 7"),
        (LineColumn(3, 2), "line 3, column 2"),
        (LineColumn(3, 2, Pointer("/a")), "line 3, column 2: /a"),
        (Pointer("/a").around(None), "/a"),
        (Pointer("/a").around(Pointer()), "/a"),
        (Pointer("/a").around(Pointer("/b", Offset(7))), "/a/b: offset 7"),
        (Pointer("/a").around(LineColumn(3, 2, Offset(7))), "/a: line 3, column 2: offset 7"),
    ],
)
def test_places_as_they_are_printed(location: Location, text: str) -> None:
    error = BudgetExceeded("too much", location=location, keyword="size")
    assert error.pointer == text and str(error) == f"too much (at {text})"


def test_a_refusal_moved_to_another_place() -> None:
    error = BudgetExceeded("too much", keyword="size")
    assert error.pointer == "" and str(error) == "too much"
    moved = error.at(Pointer("/a"))
    assert type(moved) is BudgetExceeded
    assert (str(moved), moved.keyword, moved.message) == ("too much (at /a)", "size", "too much")
    assert error.at(Offset(1), "format").keyword == "format"
