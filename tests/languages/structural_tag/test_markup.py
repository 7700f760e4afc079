"""cohere_xml and minimax_m3_xml, in which nested values are markup, too: judged by xgrammar, which defined them."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm import Index, UnsupportedError, Vocabulary

ARGUMENTS = {
    "type": "object",
    "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "e": {"enum": ["a", "b"]}, "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"p": {"type": "string"}, "q": {"type": ["number", "null"]}}, "additionalProperties": False},
        "ll": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    },
    "required": ["s", "i"], "additionalProperties": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None], eos_token_ids=[256])


def tag(schema: Any, style: str) -> dict[str, Any]:
    return {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, "style": style}}


def accepts(schema: Any, style: str, text: str, vocabulary: Vocabulary) -> bool:
    guide = Index.from_structural_tag(tag(schema, style), vocabulary).guide()
    return all(guide.advance(byte) for byte in text.encode()) and guide.can_finish


def cohere(key: str | None, kind: str, value: str) -> str:
    name = "" if key is None else f' name="{key}"'
    return f'<cofl:value{name} type="{kind}">{value}</cofl:value>'


MARK = "]<]minimax[>["


def minimax(key: str, value: str) -> str:
    return f"{MARK}<{key}>{value}{MARK}</{key}>"


C = cohere("s", "raw", "x") + cohere("i", "json", "5")
M = minimax("s", "x") + minimax("i", "5")
GOOD = {
    "cohere_xml": [
        C, f" {C}\n", cohere("s", "raw", ' <b> & "q" ') + "\n " + cohere("i", "json", " -7 "), C + cohere("e", "raw", "b"),
        C + cohere("b", "json", "true"), C + cohere("l", "list", ""), C + cohere("o", "dict", ""), C + cohere("o", "dict", " "),
        C + cohere("l", "list", " " + cohere(None, "raw", "a") + cohere(None, "raw", "b") + " "),
        C + cohere("o", "dict", " " + cohere("p", "raw", "z") + " " + cohere("q", "json", "1.5") + " "),
        C + cohere("o", "dict", cohere("q", "json", "null")),
        C + cohere("ll", "list", cohere(None, "list", cohere(None, "json", "1") + cohere(None, "json", " 2 ")) + cohere(None, "list", "")),
        cohere("s", "raw", "") + cohere("i", "json", "0"),
    ],
    "minimax_m3_xml": [
        M, f" {M}\n", minimax("s", ' <b> & "q" ]<] ') + "\n " + minimax("i", "-7"), M + minimax("e", "b"), M + minimax("b", "true"),
        M + minimax("l", ""), M + minimax("l", minimax("item", "a")), M + minimax("o", ""),
        M + minimax("l", " " + minimax("item", "a") + " " + minimax("item", "") + " "),
        M + minimax("o", " " + minimax("p", "z") + " " + minimax("q", "1.5") + " "), M + minimax("o", minimax("q", "null")),
        M + minimax("ll", minimax("item", minimax("item", "1") + minimax("item", "2")) + minimax("item", "")),
        minimax("s", "") + minimax("i", "0"),
    ],
}  # fmt: skip
BAD = {
    "cohere_xml": [
        "", C + "x", cohere("i", "json", "5"), cohere("i", "json", "5") + cohere("s", "raw", "x"), C + cohere("zz", "raw", "x"),
        C + cohere("e", "raw", "c"), C + cohere("b", "raw", "true"), C + cohere("l", "list", cohere(None, "json", "1")),
        C + cohere("l", "list", cohere(None, "raw", "a") + " " + cohere(None, "raw", "b")), C + cohere("o", "dict", cohere("z", "json", "1")),
        cohere("s", "raw", "a</cofl:value>b") + cohere("i", "json", "5"), cohere("s", "raw", "x") + cohere("i", "json", "05"),
    ],
    "minimax_m3_xml": [
        "", M + "x", minimax("i", "5"), minimax("i", "5") + minimax("s", "x"), M + minimax("zz", "x"), M + minimax("e", "c"),
        M + minimax("b", "yes"), M + minimax("l", "a"), M + minimax("l", " "), M + minimax("o", " "), M + minimax("o", minimax("z", "1")),
        minimax("s", f"a{MARK}b") + minimax("i", "5"), minimax("s", "x") + minimax("i", " 5"), minimax("s", "x") + minimax("i", "05"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("style", GOOD)
def test_as_xgrammar_reads_them(style: str, vocabulary: Vocabulary) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    grammar = xgrammar.Grammar.from_structural_tag(tag(ARGUMENTS, style))
    for texts, verdict in ((GOOD[style], True), (BAD[style], False)):
        assert [text for text in texts if accepts(ARGUMENTS, style, text, vocabulary) != verdict] == []
        assert [text for text in texts if _is_grammar_accept_string(grammar, text) != verdict] == []


def test_keys_are_escaped_as_attributes(vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "properties": {'a"<&>': {"type": "null"}}, "additionalProperties": {"type": "integer"}}
    assert accepts(schema, "cohere_xml", cohere("a&quot;&lt;&amp;&gt;", "json", "null"), vocabulary)
    assert accepts(schema, "cohere_xml", cohere("b&amp;", "json", "1") + cohere("any key", "json", "2"), vocabulary)
    for key in ("", 'a"', "a<", "&", "a&quot;&lt;&amp;&gt;"):  # the last key is declared, and must be null
        assert not accepts(schema, "cohere_xml", cohere(key, "json", "1"), vocabulary), key


def test_any_value_nested(vocabulary: Vocabulary) -> None:
    """A tool without a schema for its arguments allows this."""
    nested = cohere("a", "dict", cohere("b", "list", cohere(None, "raw", "x") + cohere(None, "json", "1e5")))
    for text in ("", nested, cohere("a", "json", "null")):
        assert accepts({"type": "object"}, "cohere_xml", text, vocabulary)
    assert not accepts({"type": "object"}, "cohere_xml", cohere("a", "json", '"x"'), vocabulary)
    assert accepts({"type": "object"}, "minimax_m3_xml", "", vocabulary)


def test_tools_without_parameters(vocabulary: Vocabulary) -> None:
    """MCP servers write such tools."""
    none: dict[str, Any] = {"type": "object", "properties": {}}
    inside = {"type": "object", "properties": {"x": none}, "required": ["x"]}
    for schema in (none, {**none, "required": []}, {**none, "additionalProperties": False}):
        assert accepts(schema, "minimax_m3_xml", "", vocabulary)
        assert not accepts(schema, "minimax_m3_xml", minimax("x", "1"), vocabulary)
    assert accepts(inside, "minimax_m3_xml", minimax("x", ""), vocabulary)
    assert not accepts(inside, "minimax_m3_xml", minimax("x", minimax("y", "1")), vocabulary)


def test_lengths_and_patterns_of_raw_strings(vocabulary: Vocabulary) -> None:
    """In minimax_m3_xml, xgrammar refuses them."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^a+$", "maxLength": 3}},
        "required": ["x"],
    }
    for style, write in (("minimax_m3_xml", minimax), ("cohere_xml", lambda key, value: cohere(key, "raw", value))):
        assert accepts(schema, style, write("x", "aaa"), vocabulary)
        assert not accepts(schema, style, write("x", "aaaa"), vocabulary)
        assert not accepts(schema, style, write("x", "b"), vocabulary)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"x": {}}},
    ],
)
def test_what_minimax_m3_cannot_write_is_refused(schema: Any, vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedError, match="minimax_m3_xml"):
        accepts(schema, "minimax_m3_xml", "", vocabulary)
