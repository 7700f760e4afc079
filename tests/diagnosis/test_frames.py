"""Refusals as people read them: ten common mistakes, and what the frames must cope with."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotllm.cli import check
from dotllm.diagnosis.frames import Mark, SourceText, code_frame, error_frame
from dotllm.errors import InvalidSpecError, LineColumn, Offset, Pointer, Related
from dotllm.languages.json_schema import json_schema_to_grammar

REFUSALS = Path(__file__).parent / "refusals"
NAMES = "min-max.json allof.json anyof.json required.json remote.json ref.json type.json unique.json behind.regex greet.lark"


def test_ten_refusals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """``expected.txt`` is the output of `dotllm check` for the files next to it."""
    monkeypatch.chdir(REFUSALS)
    assert check.main(NAMES.split()) == check.REFUSED
    assert capsys.readouterr().out == (REFUSALS / "expected.txt").read_text()


def test_a_long_line_is_cut_around_its_mark() -> None:
    text = '{"a": "' + "x" * 500 + '", "type": "strnig"}'
    frame = error_frame(InvalidSpecError("unknown type", location=Pointer("/type")), SourceText("f.json", text))
    lines = frame.splitlines()
    assert lines[1] == " --> f.json:1:511  (/type)"
    assert max(map(len, lines[2:4])) < 140 and lines[3].index("^") == lines[2].index('"type"')


def test_places_that_are_not_in_the_text() -> None:
    error = InvalidSpecError("wrong", location=Pointer("/a/b"), related=[Related(Pointer("/c"), "here")])
    assert error_frame(error, SourceText("f.json", "")).splitlines()[1] == "  --> f.json  (/a/b)"
    assert error_frame(InvalidSpecError("wrong"), SourceText("f.json", "{}")).splitlines()[1] == "  --> f.json"


@pytest.mark.parametrize(
    ("location", "place", "carets"),
    [
        (Offset(1), "1:2", "^"),
        (LineColumn(2, 1), "2:1", "^^^^"),
        (Offset(99), "2:5", "^"),
        (LineColumn(1, 4), "1:4", "^"),
    ],
)
def test_places_in_texts(location: Offset | LineColumn, place: str, carets: str) -> None:
    source = SourceText("g", "a b\nword", is_json=False)
    lines = error_frame(InvalidSpecError("wrong", location=location), source).splitlines()
    assert lines[1].endswith(f"g:{place}") and lines[3].split("|")[1].strip() == carets


def test_marks_far_apart() -> None:
    source = SourceText("f", "\n".join("abcdefghij"), is_json=False)
    lines = code_frame(source, [Mark(0, 1, "first"), Mark(18, 19, "last")])
    assert [line.strip() for line in lines] == ["--> f:1:1", "1 | a", "| ^ first", "…  |", "10 | j", "| ^ last"]


def test_colours_change_no_text() -> None:
    source = SourceText("f.json", '{"type": 5}')
    error = InvalidSpecError("wrong", location=Pointer("/type"), help="write it right")
    import re

    coloured = error_frame(error, source, colour=True)
    assert "\033[" in coloured and re.sub(r"\033\[[0-9;]*m", "", coloured) == error_frame(error, source)


@pytest.mark.parametrize(
    ("location", "character"),
    [
        (Pointer("/pattern", Offset(0)), "^"),
        (Pointer("/pattern", Offset(2)), "("),
        (Pointer("/pattern", Offset(3)), "x"),
        (Pointer("/grammar", LineColumn(2, 3)), "!"),
        (Pointer("/of/(", Offset(0)), "("),
    ],
)
def test_places_within_strings_of_json(location: Pointer, character: str) -> None:
    """An escape counts as one character, and a pattern of patternProperties is a key."""
    text = r'{"pattern": "^\ud83d\ude00(x", "grammar": "ab\ncd!", "of": {"(": {}}}'
    mark = SourceText("f", text).mark(location)
    assert mark is not None and text[mark.begin] == character


def test_a_pattern_is_marked_where_it_is_wrong() -> None:
    text = '{"pattern": "a(b"}'
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(text)
    assert error_frame(refusal.value, SourceText("f", text)).splitlines()[-2].endswith("^ here")
