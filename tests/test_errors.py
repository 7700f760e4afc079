"""Where a refusal says that the fault lies."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from dotllm import errors
from dotllm.errors import (
    CODES,
    DOCUMENTATION,
    BudgetExceeded,
    InvalidSpec,
    LineColumn,
    Location,
    Offset,
    Pointer,
    Related,
    Span,
    Unsupported,
)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Pointer() / "a" / 3, "/a/3"),
        (Pointer() / "a/b~c", "/a~1b~0c"),
        (Offset(7), "offset 7"),
        (LineColumn(3, 2), "line 3, column 2"),
        (LineColumn(3, 2, Pointer("/a")), "line 3, column 2: /a"),
        (Pointer("/a").around(None), "/a"),
        (Pointer("/a").around(Pointer()), "/a"),
        (Pointer("/a").around(Pointer("/b", Offset(7))), "/a/b: offset 7"),
        (Pointer("/a").around(LineColumn(3, 2, Offset(7))), "/a: line 3, column 2: offset 7"),
        (Pointer("", Offset(7)), "offset 7"),
    ],
)
def test_places_as_they_are_printed(location: Location, text: str) -> None:
    error = BudgetExceeded("too much", location=location, keyword="size")
    assert error.place == text and str(error) == f"too much (at {text})"


def test_a_refusal_moved_to_another_place() -> None:
    error = BudgetExceeded("too much", keyword="size")
    assert (error.place, error.pointer, str(error)) == ("", None, "too much")
    moved = error.at(Pointer("/a"))
    assert type(moved) is BudgetExceeded
    assert (str(moved), moved.keyword, moved.message) == ("too much (at /a)", "size", "too much")
    assert error.at(Offset(1), "format").keyword == "format"


@pytest.mark.parametrize(
    ("location", "pointer", "span"),
    [
        (None, None, None),
        (Pointer(), "", None),
        (Pointer("/a~1b"), "/a~1b", None),
        (Pointer("/pattern", Offset(7)), "/pattern", Span(offset=7)),
        (Pointer("/grammar", LineColumn(3, 2)), "/grammar", Span(line=3, column=2)),
        (Offset(7), None, Span(offset=7)),
        (LineColumn(3, 2), None, Span(line=3, column=2)),
        (LineColumn(3, 2, Pointer("/type")), "/type", Span(line=3, column=2)),
    ],
)
def test_places_for_programs(location: Location | None, pointer: str | None, span: Span | None) -> None:
    error = InvalidSpec("wrong", location=location)
    assert (error.pointer, error.span) == (pointer, span)


def test_the_whole_is_at_fault() -> None:
    """RFC 6901: "" is the whole document, and "/" its member of the empty name."""
    assert str(InvalidSpec("wrong", location=Pointer())) == "wrong"
    assert (Pointer() / "").path == "/"


def test_codes_help_and_related_places() -> None:
    assert [kind("x").code for kind in (InvalidSpec, Unsupported, BudgetExceeded)] == [
        *("invalid_value", "unsupported", "too_large")
    ]
    related = (Related(Pointer("/b"), "here, too"),)
    error = InvalidSpec("unknown type 'strnig'", code="unknown_type", help='did you mean "string"?', related=related)
    moved = error.at(Pointer("/a"))
    assert str(moved) == "unknown type 'strnig'; did you mean \"string\"? (at /a)"
    assert (moved.code, moved.help, moved.related) == (error.code, error.help, related)
    assert moved.url.endswith("#unknown_type")
    assert str(copy.copy(moved)) == str(moved) and copy.copy(moved).help == moved.help


def test_every_code_has_its_section() -> None:
    """`SpecError.url` leads to one."""
    page = (Path(__file__).parent.parent / "docs" / "errors.md").read_text()
    sections = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sorted(sections) == sorted(CODES)
    assert DOCUMENTATION.endswith("/docs/errors.md")


def test_every_code_is_given_somewhere() -> None:
    sources = "".join(path.read_text() for path in Path(errors.__file__).parent.rglob("*.py"))
    defaults = {kind.default_code for kind in (InvalidSpec, Unsupported, BudgetExceeded)}
    assert [code for code in CODES if code not in defaults and sources.count(f'"{code}"') < 2] == []
