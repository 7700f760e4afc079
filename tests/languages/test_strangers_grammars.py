"""Grammars and structural tags by authors who know the other notation: the refusal says what to write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm.errors import SpecError
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.structural_tag.build import structural_tag_to_grammar

GRAMMARS = [
    ('root: "a"', "line 1, column 1", "no rule 'start'", "rename 'root' to 'start'"),
    ('b: "b"\nroot: "a" b', "line 2, column 1", "no rule 'start'", 'EBNF: root ::= "…"'),
    ('?root: "a"', "line 1, column 2", "no rule 'start'", "rename 'root' to 'start'"),
    ('main: "a"', "line 1, column 1", "no rule 'start'", "rename 'main' to 'start'"),
    ('TEXT: "a"', "line 1, column 1", "no rule 'start'", "rename 'TEXT' to 'start'"),
    ('b ::= "b"\nstart ::= "a"', "line 2, column 1", "no rule 'root'", 'Lark: start: "…"'),
    ('main ::= "a"', "line 1, column 1", "no rule 'root'", "rename 'main' to 'root'"),
    ('root = "a"', "line 1, column 6", "expected ':', found '='", "root ::= …"),
    ('root := "a"', "line 1, column 7", "found ':='", "root ::= …"),
    ('S -> "a"', "line 1, column 3", "found '->'", "S ::= …"),
    ('start: "a";', "line 1, column 11", "a rule ends at the end of its line", ""),
    ('root ::= "a";', "line 1, column 13", "a rule ends where the next one begins", ""),
    ('root ::= b\nb: "c"', "line 2, column 2", "rules are defined with '::='", ""),
    (
        'start <- "a"',
        "line 1, column 7",
        "unexpected '<': a rule is defined as name: … (Lark), or name ::= … (EBNF)",
        "",
    ),
    ('start → "a"', "line 1, column 7", "unexpected '→': a rule is defined as name: …", ""),
    ("start: “a”", "line 1, column 8", "strings are written in straight double quotes", ""),
    ("root ::= “a”", "line 1, column 10", "strings are written in straight double quotes", ""),
    ("start: 'a'", "line 1, column 8", "strings are written in double quotes", ""),
    ("root ::= 'a'", "line 1, column 10", "strings are written in double quotes", ""),
    ('\ufeffstart: "a"', "line 1, column 1", "this is a byte order mark; leave it out", ""),
    ('\ufeffroot ::= "a"', "line 1, column 1", "this is a byte order mark; leave it out", ""),
    ('start:\xa0"a"', "line 1, column 7", "only ordinary spaces, tabs and line breaks separate words", ""),
    ('root ::=\u3000"a"', "line 1, column 9", "only ordinary spaces, tabs and line breaks separate words", ""),
    ('start: "a\nb"', "line 1, column 8", "a line break in it is written \\n", ""),
    ('root ::= "a\nb"', "line 1, column 10", "a line break in it is written \\n", ""),
    ("root ::= [a\nb]", "line 1, column 10", "a line break in it is written \\n", ""),
    ("root ::= €", "line 1, column 10", "unexpected '€'", ""),
    ("start: A\n%declare A", "line 2, column 1", "%declare is not supported", "NAME: /[a-z]+/"),
    (
        '%import common.INT\n%override INT: "1"\nstart: INT',
        "line 2, column 1",
        "%override is not supported",
        "a name of its own",
    ),
    (
        '%import common.INT\n%extend INT: "x"\nstart: INT',
        "line 2, column 1",
        "%extend is not supported",
        "all alternatives",
    ),
    (
        "start: value\n%import .values (value)",
        "line 2, column 9",
        "only the library 'common' can be imported",
        "write the imported rules and terminals into it",
    ),
    ("start: X\n%import python.NAME -> X", "line 2, column 9", "only the library 'common'", "only one grammar"),
    ('<root> ::= "a"', "line 1, column 8", "unexpected '::='", "a plain name"),
]
TAGS: list[tuple[Any, str, str, str]] = [
    ({"type": "json_schema", "json_schema": {}}, "/type", "must be 'structural_tag'", '"format": {"type": "json_schema", …}'),
    ({"type": "any_text"}, "/type", "must be 'structural_tag'", '"format": {"type": "any_text", …}'),
    ({"type": "tag", "begin": "a", "content": {"type": "any_text"}, "end": "b"}, "/type", "must be", '{"type": "tag", …}'),
    ({"type": "object", "properties": {}}, "/type", "must be 'structural_tag'", '"json_schema": {…}'),
    ({"type": "nonsense"}, "/type", "must be 'structural_tag'", '{"type": "structural_tag", "format": {…}}'),
    ({"type": "structural_tag"}, "", "'format' is missing", '"format": {…}'),
    ({"begin": "a", "content": {"type": "any_text"}, "end": "b"}, "", "'format' is missing", 'of type "tag"'),
    ({}, "", "'format' is missing", '"format": {…}'),
    ([], "", "expected an object, not a list", ""),
    ({"type": "structural_tag", "format": "any_text"}, "/format", "not a string", ""),
    ({"type": "structural_tag", "format": True}, "/format", "not true", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message", "help"), GRAMMARS, ids=[row[0] for row in GRAMMARS])
def test_a_grammar_of_the_other_notation(text: str, place: str, message: str, help: str) -> None:
    with pytest.raises(SpecError) as refusal:
        grammar_to_grammar(text)
    assert refusal.value.place == place
    assert message in refusal.value.message and help in refusal.value.help


@pytest.mark.parametrize(("spec", "pointer", "message", "help"), TAGS, ids=[json.dumps(row[0]) for row in TAGS])
def test_what_is_no_structural_tag(spec: Any, pointer: str, message: str, help: str) -> None:
    with pytest.raises(SpecError) as refusal:
        structural_tag_to_grammar(spec)
    assert refusal.value.pointer == pointer
    assert message in refusal.value.message and help in refusal.value.help
