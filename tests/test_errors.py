"""The place of the fault in a refusal."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from dotllm import Index, errors
from dotllm.cli import explain
from dotllm.compilation.errors import UNAVAILABLE
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.errors import (
    CODES,
    BudgetExceededError,
    InvalidSpecError,
    LineColumn,
    Location,
    Offset,
    Pointer,
    Related,
    Span,
    SpecError,
    UnsupportedError,
    page,
)

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"


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
    error = BudgetExceededError("too much", location=location, keyword="size")
    assert error.place == text and str(error) == f"too much (at {text})"


def test_a_refusal_moved_to_another_place() -> None:
    error = BudgetExceededError("too much", keyword="size")
    assert (error.place, error.pointer, str(error)) == ("", None, "too much")
    moved = error.at(Pointer("/a"))
    assert type(moved) is BudgetExceededError
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
    error = InvalidSpecError("wrong", location=location)
    assert (error.pointer, error.span) == (pointer, span)


def test_the_whole_is_at_fault() -> None:
    """RFC 6901: "" is the whole document, and "/" is its member with the empty name."""
    assert str(InvalidSpecError("wrong", location=Pointer())) == "wrong"
    assert (Pointer() / "").path == "/"


def test_codes_help_and_related_places() -> None:
    assert [kind("x").code for kind in (InvalidSpecError, UnsupportedError, BudgetExceededError)] == [
        *("invalid_value", "unsupported", "too_large")
    ]
    related = (Related(Pointer("/b"), "here, too"),)
    error = InvalidSpecError(
        "unknown type 'strnig'", code="unknown_type", help='did you mean "string"?', related=related
    )
    moved = error.at(Pointer("/a"))
    assert str(moved) == "unknown type 'strnig'; did you mean \"string\"? (at /a)"
    assert (moved.code, moved.help, moved.related) == (error.code, error.help, related)
    assert moved.url.endswith("#unknown_type")
    assert str(copy.copy(moved)) == str(moved) and copy.copy(moved).help == moved.help


def test_every_code_has_its_section() -> None:
    """`SpecError.url` leads to a section, and ``dotllm explain`` prints it."""
    assert sorted(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)) == sorted([*CODES, UNAVAILABLE])
    assert page("errors", "syntax") == "docs/errors.md#syntax"
    assert (Path(errors.__file__).parent / "errors.md").read_text() == PAGE.read_text()


def blocks(code: str) -> list[tuple[str, str]]:
    """(Language, text) of the blocks of a code's section."""
    return re.findall(r"^```(\w+)\n(.*?)\n```$", explain.section(code), re.MULTILINE | re.DOTALL)


def compiled(language: str, text: str) -> Index:
    if language == "regex":
        return Index.from_regex(text, byte_vocabulary())
    if language == "lark":
        return Index.from_grammar(text, byte_vocabulary())
    is_tag = '"structural_tag"' in text
    return (Index.from_structural_tag if is_tag else Index.from_json_schema)(text, byte_vocabulary())


EXAMPLES = {code: found for code in CODES if (found := blocks(code)) and found[0][0] != "python" and len(found) > 1}


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_code_is_refused_and_its_remedy_is_not(code: str) -> None:
    wrong, message, right = EXAMPLES[code]
    with pytest.raises(SpecError) as caught:
        compiled(*wrong)
    assert (caught.value.code, str(caught.value)) == (code, message[1])
    assert compiled(*right).guide().mask_row >= 0


def test_codes_without_an_example_of_a_specification() -> None:
    """The documentation's tests run the other codes' Python; nesting and time have no example short enough to read."""
    assert sorted(set(CODES) - set(EXAMPLES)) == ["conflict", "tokenizer", "too_deep", "too_few_tokens", "too_slow"]


def test_every_code_is_given_somewhere() -> None:
    sources = "".join(path.read_text() for path in Path(errors.__file__).parent.rglob("*.py"))
    defaults = {kind.default_code for kind in (InvalidSpecError, UnsupportedError, BudgetExceededError)}
    assert [code for code in CODES if code not in defaults and sources.count(f'"{code}"') < 2] == []


def test_what_users_wrote_is_cut_where_it_is_long() -> None:
    name = "n" * 100_000
    place = Pointer("/properties") / "a" / name / "type"
    error = InvalidSpecError(f"unknown type {name}; use string", location=place, keyword=name, help=name)
    assert str(error).startswith("unknown type nnn") and str(error).endswith("(at /properties/a)")
    assert "…" in error.message and error.message.endswith("nnn; use string") and len(str(error)) < 5000
    assert error.pointer == "/properties/a" and len(error.keyword) < 300
    assert (error.at(Pointer("/x").around(error.location)).pointer, error.at(place).pointer) == (
        "/x/properties/a", "/properties/a",
    )  # fmt: skip
    assert InvalidSpecError("no", location=LineColumn(2, 3, place)).location == LineColumn(
        2, 3, Pointer("/properties/a")
    )
    assert InvalidSpecError("no", location=Pointer(f"/{name}")).pointer == ""
    related = [Related(place, name)] * 100_000
    assert all(len(one.message) < 3000 for one in InvalidSpecError("no", related=related).related)
