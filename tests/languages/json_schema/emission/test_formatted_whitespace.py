"""The white space between two JSON tokens: what formatters write, and no long runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.languages.json_schema.verdicts import Acceptor

VALUE: Any = {"a": [1, {"b": [], "c": {}}, [2, "x y"]], "d": {"e": None}, "f": []}
SCHEMA = {"type": "object", "properties": {"a": {"type": "array"}, "d": {"type": "object"}}, "required": ["a"]}


@pytest.mark.parametrize("schema", [SCHEMA, {}, {"const": VALUE}], ids=["object", "anything", "const"])
@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4, 8, "\t"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_what_formatters_write(schema: Any, indent: int | str | None, line_break: str) -> None:
    """Every indentation, and no indentation with various separators."""
    acceptor = Acceptor(schema)
    for separators in (None, (",", ":"), (", ", ": "), (" , ", " : ")):
        text = json.dumps(VALUE, indent=indent, separators=separators)
        if indent is not None and separators is not None and separators[0].endswith(" "):
            continue  # a blank before a line break
        assert acceptor.text(text.replace("\n", line_break)), text


@pytest.mark.parametrize(
    "blanks", ["  ", "\t", " \n", "\n\n", "\r ", "\n \t", "\n\t ", "\n" + 33 * " ", "\n" + 9 * "\t", " \t"]
)
def test_what_none_writes(blanks: str) -> None:
    """It is allowed only if any white space is."""
    places = ['{%s"a": []}', '{"a"%s: []}', '{"a":%s[]}', '{"a": [%s]}', '{"a": []%s}', '{"a": []%s, "d": {}}']
    usual, old = Acceptor(SCHEMA), Acceptor(SCHEMA, whitespace="any")
    for place in places:
        assert not usual.text(place % blanks) and not usual.prefix(place.partition("%s")[0] + blanks)
        assert old.text(place % blanks)
    assert not old.text('{"a":' + 321 * " " + "[]}") and old.text('{"a":' + 320 * " " + "[]}")


def test_the_deepest_indentations() -> None:
    """32 blanks, 8 tabs."""
    acceptor = Acceptor({})
    for blank, most in ((" ", 32), ("\t", 8)):
        assert acceptor.text("[\n" + most * blank + "1]")
        assert not acceptor.prefix("[\n" + most * blank + blank)


@pytest.mark.parametrize("options", [{"any_whitespace": False}, {"whitespace_pattern": "\t?"}])
def test_other_options_come_first(options: Any) -> None:
    """Options that replace white space replace both kinds."""
    for whitespace in ("formatted", "any"):
        acceptor = Acceptor(SCHEMA, whitespace=whitespace, **options)
        assert acceptor.text('{"a":[]}') and not acceptor.text('{"a": []}')
        assert acceptor.text('{"a":\t[]}') == ("whitespace_pattern" in options)
