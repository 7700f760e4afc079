"""Structural tags: every format, judged by examples and by xgrammar, which defined the formats."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import dotllm.languages
from dotllm import BudgetExceededError, Index, InvalidSpecError, UnsupportedError, Vocabulary
from dotllm.automata.dfa import Budget
from dotllm.errors import SpecError
from dotllm.languages.structural_tag.build import structural_tag_to_grammar
from tests.effort import at_most

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ARGUMENTS = {
    "type": "object",
    "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "e": {"enum": ["a", "b"]}, "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}}, "o": {"type": "object", "properties": {"p": {"type": "string"}}},
    },
    "required": ["s", "i"], "additionalProperties": False,
}  # fmt: skip
JSON = {"type": "json_schema", "json_schema": SCHEMA}


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    special = {"<|tool|>": 257, "<|end|>": 258, "<|other|>": 259}
    return Vocabulary.from_bytes(
        [bytes([i]) for i in range(256)] + [None] * 4, eos_token_ids=[256], special_tokens=special
    )


def accepts(format_: Any, text: str, vocabulary: Vocabulary) -> bool:
    """Read ``text``: names of special tokens as their ids, everything else byte by byte."""
    spec = format_ if "structures" in format_ else {"type": "structural_tag", "format": format_}
    guide = Index.from_structural_tag(spec, vocabulary).guide()
    for part in re.split(r"(<\|\w+\|>)", text):
        tokens = [vocabulary.special_tokens[part]] if part in vocabulary.special_tokens else list(part.encode())
        if not all(guide.advance(token) for token in tokens):
            return False
    return guide.can_finish


LEGACY = {
    "structures": [
        {"begin": "<function=f>", "schema": SCHEMA, "end": "</function>"},
        {"begin": "<function=g>", "schema": True, "end": "</function>"},
    ],
    "triggers": ["<function="],
}
TRIGGERED = {
    "type": "triggered_tags",
    "triggers": ["<f="],
    "tags": [tag("<f=1>", JSON, "</f>"), tag("<f=2>", JSON, "</f>")],
}
SEPARATED = {"type": "tags_with_separator", "tags": [tag("[", JSON, "]")], "separator": ";"}

CASES: list[tuple[Any, list[str], list[str]]] = [
    (LEGACY, ["", "hi <b> there", 'x<function=f>{"a": 1}</function> more <function=g>[1]</function>'], ['x<function=f>{"a": "1"}</function>', "x<function=h>", 'x<function=f>{"a":1}']),
    ({"type": "const_string", "value": "abc"}, ["abc"], ["", "ab", "abcd"]),
    ({"type": "const_string", "value": "a<|tool|>b"}, ["a<|tool|>b"], ["ab", "a<|end|>b"]),
    (JSON, ['{"a":1}', '{ "a" : -5 }'], ["{}", "1"]),
    ({"type": "regex", "pattern": "[0-9]{2,3}"}, ["12", "123"], ["1", "1234"]),
    ({"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}, ["x", "((x))"], ["(x", ""]),
    ({"type": "any_text"}, ["", "any thing\n"], ["<|tool|>"]),
    ({"type": "any_text", "excludes": ["bad"]}, ["", "ba", "bbad"[:3]], ["bad", "xx bad"]),
    ({"type": "any_text", "max_chars": 3}, ["", "éée"], ["abcd"]),
    ({"type": "any_text", "max_chars": 5, "excludes": ["no"]}, ["", "nnnn", "onn é"], ["ano", "abcdef"]),
    ({"type": "any_text", "max_chars": 5_000, "excludes": ["no", "<|tool|>"]}, ["n" * 5_000], ["n" * 5_001, "n" * 4_000 + "o"]),
    (tag("<t>", {"type": "any_text", "max_chars": 5}, ["!", "<|end|>"]), ["<t>abcde!", "<t>abcde<|end|>"], ["<t>a!b!", "<t>abcdef!"]),
    ({**JSON, "excludes": ["x"]}, ['{"a":1}'], ["{}"]),
    ({"type": "json_schema", "json_schema": True, "excludes": ["</t>"]}, ['{"</t":["</ta>"]}', r'"<\/t>"'], ['"a</t>"', '{"</t>":1}']),
    ({"type": "json_schema", "json_schema": {"type": "string", "maxLength": 4}, "excludes": ["</t>"]}, [r'"<\/t>"', '"</t"'], ['"</t>"', '"12345"']),
    ({"type": "json_schema", "json_schema": {"type": "string", "pattern": "t"}, "excludes": ["</t>"]}, ['"</t"'], [r'"<\/t>"', '"</t>"']),
    ({"type": "json_schema", "json_schema": ARGUMENTS, "style": "qwen_xml", "excludes": ["no", '"s'], }, ["<parameter=s>n o</parameter><parameter=i>1</parameter>"], ["<parameter=s>anot</parameter><parameter=i>1</parameter>"]),
    ({"type": "json_schema", "json_schema": {"type": "object", "additionalProperties": {"type": "string"}}, "style": "qwen_xml", "excludes": ["no"]}, ["<parameter=on>on</parameter>"], ["<parameter=no>on</parameter>", "<parameter=on>no</parameter>"]),
    ({"type": "json_schema", "json_schema": ARGUMENTS, "style": "qwen_xml", "excludes": ["e", "x\""]}, ["<parameter=s>a</parameter><parameter=i>1</parameter>", '<parameter=s>a</parameter><parameter=i>1</parameter><parameter=l>["x"]</parameter>'], ["<parameter=s>a</parameter><parameter=i>1</parameter><parameter=e>a</parameter>", '<parameter=s>a</parameter><parameter=i>1</parameter><parameter=l>["e"]</parameter>']),
    (tag("<t>", {"type": "any_text"}, "</t>"), ["<t></t>", "<t>a<b</t>"], ["<t>a</t>b</t>", "<t>a"]),
    (tag("<t>", {"type": "any_text"}, ["</t>", "<|end|>"]), ["<t>x</t>", "<t>x<|end|>"], ["<t>x"]),
    (tag({"type": "token", "token": "<|tool|>"}, {"type": "any_tokens", "exclude_tokens": ["<|end|>"]}, {"type": "token", "token": 258}), ["<|tool|>ab<|other|><|end|>", "<|tool|><|end|>"], ["<|tool|>a", "a<|end|>"]),
    ({"type": "token", "token": 65}, ["A"], ["B", ""]),
    ({"type": "exclude_token", "exclude_tokens": ["<|end|>", 65]}, ["B", "<|tool|>"], ["A", "<|end|>", "BB"]),
    ({"type": "any_tokens", "max_tokens": 2}, ["", "a", "ab"], ["abc"]),
    ({"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "any_text"}]}, ["a", "abc"], ["b"]),
    ({"type": "or", "elements": [{"type": "const_string", "value": "a"}, {"type": "const_string", "value": "ab"}]}, ["a", "ab"], ["b", ""]),
    ({"type": "optional", "content": JSON}, ["", '{"a":1}'], ["x"]),
    ({"type": "plus", "content": {"type": "const_string", "value": "ab"}}, ["ab", "abab"], ["", "aba"]),
    ({"type": "star", "content": {"type": "const_string", "value": "ab"}}, ["", "ab", "abab"], ["aba"]),
    ({"type": "repeat", "min": 2, "max": 3, "content": {"type": "const_string", "value": "ab"}}, ["abab", "ababab"], ["ab", "abababab"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": {"type": "const_string", "value": "ab"}}, ["abab", "ab" * 9], ["ab"]),
    (TRIGGERED, ["", "a<b", '<f=1>{"a":1}</f>', 'a<f=1>{"a":1}</f>b<f=2>{"a":2}</f>c'], ["<f=", "<f=3>", '<f=1>{"a":1}</g>']),
    ({**TRIGGERED, "stop_after_first": True}, ["", "a", 'a<f=1>{"a":1}</f>'], ['a<f=1>{"a":1}</f>b']),
    ({**TRIGGERED, "at_least_one": True}, ['<f=1>{"a":1}</f>', '<f=1>{"a":1}</f>b'], ["", "a"]),
    ({**TRIGGERED, "at_least_one": True, "stop_after_first": True}, ['<f=2>{"a":1}</f>'], ["", '<f=1>{"a":1}</f>b']),
    ({**TRIGGERED, "excludes": ["no"]}, ["n o"], ["a no b"]),
    ({"type": "triggered_tags", "triggers": ["<|tool|>"], "tags": [tag("<|tool|>call:", JSON, "<|end|>")]}, ['text <|tool|>call:{"a":5}<|end|> more', ""], ['<|tool|>{"a":5}<|end|>', "a<|end|>"]),
    ({"type": "token_triggered_tags", "trigger_tokens": ["<|tool|>"], "tags": [tag({"type": "token", "token": "<|tool|>"}, JSON, "<|end|>")], "exclude_tokens": ["<|other|>"]}, ["", 'a<|tool|>{"a":1}<|end|>b'], ["<|tool|>", "<|other|>"]),
    (SEPARATED, ["", '[{"a":1}]', '[{"a":1}];[{"a":2}]'], ['[{"a":1}];', ";"]),
    ({**SEPARATED, "at_least_one": True}, ['[{"a":1}]'], [""]),
    ({**SEPARATED, "stop_after_first": True}, ["", '[{"a":1}]'], ['[{"a":1}];[{"a":2}]']),
    ({"type": "dispatch", "rules": [["<a>", {"type": "const_string", "value": "1"}], ["<b>", {"type": "const_string", "value": "2"}]], "excludes": ["!"]}, ["", "x<a>1y<b>2", "<"], ["<a>2", "!", "<a>"]),
    ({"type": "dispatch", "rules": [["<a>", {"type": "const_string", "value": "1"}]], "loop": False}, ["x<a>1", "x"], ["<a>1x"]),
    ({"type": "token_dispatch", "rules": [["<|tool|>", {"type": "const_string", "value": "1"}]]}, ["ab<|tool|>1c", ""], ["<|tool|>2"]),
    (tag("<t>", {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "const_string", "value": ";"}]}, "</t>"), ["<t>a;</t>", "<t>;;</t>"], ["<t>a</t>;</t>", "<t>a</t>"]),
    (tag("<t>", {"type": "star", "content": {"type": "any_text"}}, "!"), ["<t>a!", "<t>!"], ["<t>a!b!"]),
    (tag("<t>", {"type": "plus", "content": {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "const_string", "value": ";"}]}}, "!"), ["<t>a;b;!"], ["<t>!;b;!", "<t>a;!;!"]),
    (tag("<t>", {"type": "repeat", "min": 0, "max": 2, "content": {**TRIGGERED, "at_least_one": True}}, "!"), ["<t>!", '<t><f=1>{"a":1}</f>b!'], ['<t><f=1>{"a":1}</f>b!c!']),
    (tag("<t>", {"type": "dispatch", "rules": [["<a>", {"type": "any_text"}]]}, "!"), ["<t>x<a>y!", "<t>!"], ["<t>x<a>y!z!"]),
    (tag("<t>", {"type": "sequence", "elements": [tag("[", {"type": "any_text"}, "]"), {"type": "any_text"}]}, "!"), ["<t>[!]x!"], ["<t>[!]x!y!"]),
    (tag("<t>", {"type": "any_text"}, "<|end|>!"), ["<t>a<|end|>!"], ["<t>a<|end|>b<|end|>!", "<t><|end|><|end|>!"]),
    ({"type": "dispatch", "rules": [["<|tool|>a", {"type": "const_string", "value": "1"}]], "excludes": ["x<|tool|>b", "<|end|>!"]}, ["x<|tool|>a1", "<|tool|>c"], ["<|end|>", "x<|tool|>b"]),
    (tag("<t>", tag("[", {"type": "any_text"}, ""), "!"), ["<t>[a!", "<t>[!"], ["<t>[a!b!"]),
    (tag("<t>", tag("[", {"type": "any_text"}, ["", "]"]), "!"), ["<t>[a!", "<t>[a]!"], ["<t>[a!b!", "<t>[a!b]!"]),
    (tag("<t>", {"type": "tags_with_separator", "tags": [tag("[", {"type": "any_text"}, "")], "separator": ";"}, "!"), ["<t>!", "<t>[a;[b!"], ["<t>[a!b!"]),
    (tag("<t>", tag("[", {"type": "any_tokens"}, ""), {"type": "token", "token": "<|end|>"}), ["<t>[a<|end|>"], ["<t>[a<|end|>b<|end|>"]),
    (tag("[", {"type": "any_text"}, ""), ["[a]!", "["], ["a"]),
    (tag("<t>", TRIGGERED, "</t>"), ['<t>x<f=1>{"a":1}</f>y</t>', "<t></t>"], ["<t>x</t>y</t>"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("format_", "good", "bad"), CASES, ids=[str(c[0].get("type", "legacy")) + str(i) for i, c in enumerate(CASES)]
)
def test_formats(format_: Any, good: list[str], bad: list[str], vocabulary: Vocabulary) -> None:
    assert [text for text in good if not accepts(format_, text, vocabulary)] == []
    assert [text for text in bad if accepts(format_, text, vocabulary)] == []


STYLED = {
    "qwen_xml": ('<parameter={}>{}</parameter>', {}),
    "minimax_xml": ('<parameter name="{}">{}</parameter>', {}),
    "glm_xml": ("<arg_key>{}</arg_key><arg_value>{}</arg_value>", {}),
    "deepseek_xml": ('<｜DSML｜parameter name="{}" string="{}">{}</｜DSML｜parameter>', {"string": "true"}),
    "deepseek_v4_1_xml": ('<｜DSML｜ parameter name="{}" string="{}">{}</｜DSML｜ parameter>', {"string": "true"}),
    "kimi_k3_xml": ('<|open|>argument key="{}" type="{}"<|sep|>{}<|close|>argument<|sep|>', {"string": "string"}),
}  # fmt: skip
KIMI = {"i": "number", "b": "boolean", "l": "array", "o": "object"}
MEMBERS = [
    [("s", "hello <b> \"x\""), ("i", "5")],
    [("s", ""), ("i", "-7"), ("e", "b"), ("b", "true"), ("l", '["x", "y"]'), ("o", '{"p":"q"}')],
    [("i", "5")],
    [("s", "x"), ("i", "x")],
    [("s", "x"), ("i", "1"), ("e", "c")],
    [("i", "1"), ("s", "x")],
    [("s", "x"), ("i", "1"), ("z", "1")],
]  # fmt: skip


def written(style: str, members: list[tuple[str, str]]) -> str:
    template, kinds = STYLED[style]
    out = ""
    for name, value in members:
        if not kinds:
            out += template.format(name, value)
            continue
        other = KIMI.get(name, "string") if style == "kimi_k3_xml" else "false"
        out += template.format(name, kinds["string"] if name in "se" else other, value)
    return out


@pytest.mark.parametrize("style", STYLED)
def test_styles_as_xgrammar_reads_them(style: str, vocabulary: Vocabulary) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    format_ = {"type": "json_schema", "json_schema": ARGUMENTS, "style": style}
    grammar = xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": format_})
    verdicts = [accepts(format_, written(style, members), vocabulary) for members in MEMBERS]
    assert verdicts == [_is_grammar_accept_string(grammar, written(style, members)) for members in MEMBERS]
    assert verdicts == [True, True, False, False, False, False, False]


def test_lengths_of_raw_strings_are_enforced(vocabulary: Vocabulary) -> None:
    """xgrammar ignores them."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}
    format_ = {"type": "qwen_xml_parameter", "json_schema": schema}
    assert accepts(format_, "<parameter=a>abc</parameter>", vocabulary)
    assert not accepts(format_, "<parameter=a>abcd</parameter>", vocabulary)


@pytest.mark.parametrize(
    "condition",
    [{"minProperties": 2}, {"dependentRequired": {"a": ["b"]}, "required": ["a"]}, {"not": {"maxProperties": 1}}],
)
def test_conditions_on_the_parameters(condition: dict[str, object], vocabulary: Vocabulary) -> None:
    properties = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **condition}
    format_ = {"type": "json_schema", "json_schema": schema, "style": "qwen_xml"}
    assert accepts(format_, "<parameter=a>1</parameter><parameter=b>2</parameter>", vocabulary)
    assert not accepts(format_, "<parameter=a>1</parameter>", vocabulary)


@pytest.mark.parametrize("condition", [{}, {"format": "uri", "minLength": 9}, {"pattern": "^http:[a-z</]+$"}])
def test_long_raw_strings_are_counted(condition: dict[str, object], vocabulary: Vocabulary) -> None:
    """Like pydantic's HttpUrl, or any text of bounded length: no automaton has a state for each length."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 20_000, **condition}}}
    format_ = {"type": "qwen_xml_parameter", "json_schema": schema}
    for text, expected in (
        ("http://abc/", True),
        ("http://abc".ljust(20_000, "c"), True),
        ("http://abc".ljust(20_001, "c"), False),
        ("http://abc</parameter>", False),
        ("http://abc</parameter", "format" not in condition),
    ):
        assert accepts(format_, f"<parameter=a>{text}</parameter>", vocabulary) == expected, text[:30]


@pytest.mark.parametrize(
    ("spec", "error", "place"),
    [
        ({"format": {"type": "nope"}}, UnsupportedError, "/format/type"),
        ({"format": tag("a", {"type": "any_text"}, None)}, InvalidSpecError, "end"),
        ({"format": {"type": "json_schema", "json_schema": {"type": 1}}}, InvalidSpecError, "/format/json_schema/type"),
        ({"format": {**TRIGGERED, "triggers": ["x"]}}, InvalidSpecError, "/format/triggers"),
        ({"format": {"type": "const_string", "value": "a", "foo": 1}}, InvalidSpecError, "/format/foo"),
        ({"format": {"type": "regex", "pattern": "("}}, InvalidSpecError, "/format/pattern"),
        ({"format": {"type": "token", "token": "<|no|>"}}, InvalidSpecError, "/format/token"),
        ({"format": {"type": "json_schema", "json_schema": SCHEMA, "style": "yaml"}}, UnsupportedError, "yaml"),
        ({"structures": [{"begin": "<a>", "schema": {"type": "x"}, "end": "b"}], "triggers": ["<"]}, InvalidSpecError, "/structures/0/schema/type"),
        ({"format": {"type": "const_string", "value": "\ud800"}}, InvalidSpecError, "/format/value"),
        ('{"format": {"type": "const_string", "value": "\\ud800"}}', InvalidSpecError, "/format/value"),
        ({"format": tag("a", {"type": "any_text"}, ["b", "\udc00"])}, InvalidSpecError, "/format"),
        ({"format": {"type": "grammar", "grammar": 'root ::= "\ud800"'}}, InvalidSpecError, "/format/grammar"),
        ({"format": {"type": "or", "elements": [{"type": "qwen_xml_parameter", "json_schema": {"properties": {"\ud800": {}}}}]}}, InvalidSpecError, "/format/elements/0"),
        ({"structures": [{"begin": "\ud800", "schema": {}, "end": "b"}], "triggers": ["<"]}, InvalidSpecError, "/structures/0/begin"),
        ({"format": {"type": "any_text", "excludes": ["a", "\ud800"]}}, InvalidSpecError, "/format/excludes/1"),
        ({"format": {"type": "token", "token": 10**400}}, InvalidSpecError, "/format/token"),
        ({"format": {"type": "token", "token": -1}}, InvalidSpecError, "expected a token: its name, or its id of at least 0 (at /format/token)"),
        ({"format": {"type": "dispatch", "rules": [["<a>"]]}}, InvalidSpecError, "expected a list of a text and a format (at /format/rules/0)"),
        ({"format": {"type": "token_dispatch", "rules": [[5]]}}, InvalidSpecError, "expected a list of a token and a format (at /format/rules/0)"),
        ({"format": {"type": "json_schema", "json_schema": {"maximum": 10**5000}}}, BudgetExceededError, "/format/json_schema"),
        ({"format": {"type": "optional", "content": {**TRIGGERED, "excludes": ["f"]}}}, InvalidSpecError, "/format/content"),
        ({"format": {"type": "dispatch", "rules": [["<a>", {"type": "any_text"}]], "excludes": [">"]}}, InvalidSpecError, "'<a>' contains the excluded string '>'"),
        ({"format": {**JSON, "excludes": ["a"]}}, InvalidSpecError, 'no string may hold "a" (at /format/json_schema/required)'),
        ({"format": {"type": "json_schema", "json_schema": {"enum": ["<b>"]}, "excludes": ["<a>", "<b>"]}}, InvalidSpecError, 'no string may hold "<b>" (at '),
        ({"format": {"type": "json_schema", "json_schema": {"enum": []}, "excludes": ["<a>"]}}, InvalidSpecError, '"enum": [] (at '),
        ({"format": {**JSON, "excludes": ["b", ""]}}, InvalidSpecError, "/format/excludes/1"),
        ({"format": {**JSON, "excludes": ["b"], "style": "cohere_xml"}}, UnsupportedError, "/format/excludes"),
        ({"format": tag("a", {"type": "any_text", "max_tokens": 5}, "b")}, UnsupportedError, "/format/content/max_tokens"),
        ("{", InvalidSpecError, "not JSON"),
        ({}, InvalidSpecError, "format"),
    ],
)  # fmt: skip
def test_refusals_say_where(spec: Any, error: type[ValueError], place: str) -> None:
    with pytest.raises(error, match=re.escape(place)):
        structural_tag_to_grammar(spec)


NOTHING = {"type": "const_string", "value": "a"}
TOKEN_TAG = {**tag({"type": "token", "token": 65}, NOTHING, "b")}


@pytest.mark.parametrize(
    ("format_", "pointer", "message"),
    [
        ({"type": "regex"}, "/format", "the field 'pattern' is missing"),
        ({"type": "regex", "pattern": 1}, "/format/pattern", "'pattern' must be a string"),
        ({"type": "regex", "pattern": "\ud800"}, "/format/pattern", "lone surrogate"),
        ({"type": "grammar"}, "/format", "the field 'grammar' is missing"),
        ({"type": "grammar", "grammar": []}, "/format/grammar", "'grammar' must be a string"),
        ({"type": "grammar", "grammar": "\ud800"}, "/format/grammar", "lone surrogate"),
        ({"type": "sequence", "elements": [NOTHING, {"type": "regex", "pattern": []}]}, "/format/elements/1/pattern", "a string"),
        ({"type": "dispatch", "rules": [["a", NOTHING], ["\ud800", NOTHING]]}, "/format/rules/1/0", "lone surrogate"),
        ({"type": "dispatch", "rules": []}, "/format/rules", "'rules' must not be empty"),
        ({"type": "token_dispatch", "rules": []}, "/format/rules", "'rules' must not be empty"),
        ({"type": "tags_with_separator", "tags": [], "separator": ","}, "/format/tags", "'tags' must not be empty"),
        ({"type": "token_triggered_tags", "tags": [], "trigger_tokens": [65]}, "/format/tags", "'tags' must not be empty"),
        ({**TRIGGERED, "tags": []}, "/format/tags", "'tags' must not be empty"),
        (tag(["a", "b"], NOTHING, "c"), "/format/begin", 'must be a string or a token; a token is {"type": "token"'),
        (tag(5, NOTHING, "c"), "/format/begin", "'begin' must be a string or a token"),
        (tag({"type": "regex", "pattern": "a"}, NOTHING, "c"), "/format/begin", "'begin' must be a string or a token"),
        (tag("a", NOTHING, {"type": "regex", "token": 65}), "/format/end", "'end' must be a token"),
        (tag("a", NOTHING, ["b", "\udc00"]), "/format/end/1", "lone surrogate"),
        ({"type": "token_triggered_tags", "tags": [{**TOKEN_TAG, "begin": "a"}], "trigger_tokens": [65]}, "/format/tags/0/begin", "'begin' must be a token"),
        ({**TRIGGERED, "tags": [{**TRIGGERED["tags"][0], "type": "tgg"}]}, "/format/tags/0/type", "'type' must be 'tag'"),
        ({"type": "token_triggered_tags", "tags": [{**TOKEN_TAG, "type": 5}], "trigger_tokens": [65]}, "/format/tags/0/type", "'type' must be 'tag'"),
        ({**JSON, "style": "qwen-xml"}, "/format/style", "unknown style 'qwen-xml'; did you mean \"qwen_xml\"?"),
        ({**JSON, "style": "yaml"}, "/format/style", "unknown style 'yaml'; the styles are json, qwen_xml,"),
        ({"type": "token_triggered_tags", "tags": [TOKEN_TAG], "trigger_tokens": [66]}, "/format/tags/0/begin", "no trigger token begins this tag"),
        ({**JSON, "max_whitespace_cnt": 1, "whitespace_pattern": " "}, "/format/whitespace_pattern", "cannot be combined with 'max_whitespace_cnt'"),
        ({"type": "grammar", "grammar": "x", "syntax": "gbnf"}, "/format/syntax", "'syntax' must be ebnf or lark, not 'gbnf'"),
        ({"type": "any_text", "max_tokens": 3, "max_chars": 4}, "/format/max_chars", "'max_tokens' cannot be combined with 'max_chars'"),
        ({**TRIGGERED, "triggers": ["<", "<f"]}, "/format/triggers", "more than one trigger is a prefix"),
        ({"type": "json_schema", "json_schema": {"type": "integer"}, "style": "qwen_xml"}, "/format/json_schema", "must allow objects"),
        ({**JSON, "style": "yaml", "input_grammar": {"syntax": "regex", "definition": "a"}}, "/format/style", "unknown style 'yaml'"),
    ],
)  # fmt: skip
def test_refusals_point_at_the_culprit(format_: Any, pointer: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        structural_tag_to_grammar({"type": "structural_tag", "format": format_})
    assert refusal.value.pointer == pointer and message in str(refusal.value)


def test_structures_without_any_are_refused() -> None:
    structures = [{"begin": "<a>", "schema": {}, "end": "</a>"}]
    with pytest.raises(InvalidSpecError, match="'type' must be 'structural_tag'"):
        structural_tag_to_grammar({"type": "structural-tag", "structures": structures, "triggers": ["<"]})
    with pytest.raises(InvalidSpecError, match=r"'structures' must not be empty \(at /structures\)"):
        structural_tag_to_grammar({"structures": [], "triggers": ["<"]})


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside ``value``."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield (*path, name)
        yield from _places(child, (*path, name))


@pytest.mark.parametrize("wrong", [None, 1, True, [], {}, "\ud800", "", [1], {"a": 1}, ["\ud800"]], ids=repr)
def test_every_refusal_points_into_the_tag(wrong: Any) -> None:
    """Whatever stands in place of a value, a refusal's pointer leads to a value of the tag."""
    refused = 0
    for format_, _, _ in CASES:
        spec = format_ if "structures" in format_ else {"type": "structural_tag", "format": format_}
        for path in _places(spec):
            broken = copy.deepcopy(spec)
            around = broken
            for name in path[:-1]:
                around = around[name]
            around[path[-1]] = wrong
            try:
                structural_tag_to_grammar(broken)
            except SpecError as error:
                refused += 1
                here, place = broken, error.pointer
                assert place is not None
                for name in place.split("/")[1:]:
                    here = here[int(name) if isinstance(here, list) else name.replace("~1", "/").replace("~0", "~")]
    assert refused > 100


def test_deep_nesting_is_a_named_error() -> None:
    format_: Any = {"type": "const_string", "value": "a"}
    for _ in range(5000):
        format_ = {"type": "optional", "content": format_}
    with pytest.raises(BudgetExceededError):
        structural_tag_to_grammar({"format": format_})


@pytest.mark.parametrize(
    ("style", "name"),
    [("qwen_xml", " a"), ("qwen_xml", "a>b"), ("minimax_xml", 'a"b'), ("minimax_xml", ""), ("glm_xml", "a "), ("deepseek_xml", 'a"b')],
)  # fmt: skip
def test_names_that_no_reader_finds_are_refused(style: str, name: str, vocabulary: Vocabulary) -> None:
    """Values written under such names were once read as another property's, or lost."""
    schema = {"type": "object", "properties": {name: {"type": "integer"}, "a": {"type": "integer"}}}
    with pytest.raises(UnsupportedError, match="readers of this notation cannot") as caught:
        accepts({"type": "json_schema", "json_schema": schema, "style": style}, "", vocabulary)
    assert "rename" in str(caught.value)


def test_what_may_be_anything_is_a_string(vocabulary: Vocabulary) -> None:
    """A reader takes a value without a declared type for a string, so the pattern applies to the whole value."""
    schema = {
        "type": "object",
        "properties": {"a": {"pattern": "^0[0-9]+$"}, "b": {"type": ["null", "string"], "maxLength": 1}},
    }
    format_ = {"type": "json_schema", "json_schema": schema, "style": "qwen_xml"}
    assert accepts(format_, "<parameter=a>0123</parameter><parameter=b>null</parameter>", vocabulary)
    for text in ("<parameter=a>5</parameter>", "<parameter=a>[]</parameter>", "<parameter=b>\nnull</parameter>"):
        assert not accepts(format_, text, vocabulary)
    kinds = {**format_, "style": "deepseek_xml"}
    assert accepts(kinds, '<｜DSML｜parameter name="a" string="false">5</｜DSML｜parameter>', vocabulary)


def test_no_module_keeps_a_budget() -> None:
    """Each specification has its own budget: some 5,000 tools used up a module's, which then refused all others."""
    for module in pkgutil.walk_packages(dotllm.languages.__path__, "dotllm.languages."):
        for name, value in vars(importlib.import_module(module.name)).items():
            assert not isinstance(value, Budget), f"{module.name}.{name}"


def token(number: int) -> dict[str, Any]:
    return {"type": "token", "token": number}


FREE_TOKENS: dict[str, dict[str, Any]] = {
    "any_tokens": {"type": "any_tokens"},
    "exclude_token": {"type": "star", "content": {"type": "exclude_token", "exclude_tokens": [65]}},
    "in a sequence": {
        "type": "sequence",
        "elements": [{"type": "any_tokens"}, {"type": "any_tokens", "max_tokens": 3}],
    },
    "in a choice": {"type": "or", "elements": [{"type": "any_tokens"}, {"type": "const_string", "value": "zz"}]},
    "token_triggered_tags": {
        "type": "token_triggered_tags",
        "trigger_tokens": [66],
        "tags": [{"begin": token(66), "content": {"type": "const_string", "value": "a"}, "end": token(67)}],
    },
}


@pytest.mark.parametrize("name", FREE_TOKENS)
def test_free_tokens_do_not_hold_the_token_that_ends_their_tag(name: str, vocabulary: Vocabulary) -> None:
    """As xgrammar documents, the first such token ends the tag."""
    spec = {"type": "structural_tag", "format": tag(token(257), FREE_TOKENS[name], token(258))}
    index = Index.from_structural_tag(spec, vocabulary)
    for tokens, expected in [
        ([257, 258], True), ([257, 97, 98, 258], True), ([257, 258, 258], False), ([257, 97, 258, 97, 258], False),
        ([257, 97], False), ([257, 66, 97, 67, 97, 258], True),
    ]:  # fmt: skip
        guide = index.guide()
        found = all(map(guide.advance, tokens)) and guide.can_finish
        assert found == (expected and (name != "exclude_token" or 65 not in tokens)), tokens


@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_how_often_a_token_begins_a_tag(needed: bool, once: bool, vocabulary: Vocabulary) -> None:
    form = FREE_TOKENS["token_triggered_tags"] | {"at_least_one": needed, "stop_after_first": once}
    index = Index.from_structural_tag({"type": "structural_tag", "format": form}, vocabulary)
    call = [66, 97, 67]
    for tokens, expected in [
        ([], not needed), ([98], not needed), (call, True), ([98, *call], not needed), ([*call, 98], not once),
        ([*call, *call], not once), ([*call, 98, *call], not once), ([66], False),
    ]:  # fmt: skip
        guide = index.guide()
        assert (all(map(guide.advance, tokens)) and guide.can_finish) == expected, tokens


@pytest.mark.parametrize("field", ["triggers", "trigger_tokens"])
@pytest.mark.parametrize("value", [None, []])
def test_tags_without_triggers_say_what_to_write(field: str, value: Any, vocabulary: Vocabulary) -> None:
    kind, begin = ("triggered_tags", "<f>") if field == "triggers" else ("token_triggered_tags", token(66))
    form = {"type": kind, field: value, "tags": [tag(begin, {"type": "any_text"}, "</f>")]}
    with pytest.raises(InvalidSpecError, match=f"'{field}' is missing or empty.*write {field}: ") as caught:
        Index.from_structural_tag({"type": "structural_tag", "format": form}, vocabulary)
    assert str(caught.value.location) == f"/format/{field}"
    if field == "triggers":
        legacy = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": value}
        with pytest.raises(InvalidSpecError, match='write triggers: \\["<f>"\\]'):
            Index.from_structural_tag(legacy, vocabulary)


def test_free_text_does_not_spell_a_special_token_that_it_may_not_hold(vocabulary: Vocabulary) -> None:
    """A reader of the text takes the name for the token: a trigger, an excluded text, or the end."""
    call = tag("<|tool|>", {"type": "const_string", "value": "x"}, "y")
    form = {"type": "triggered_tags", "triggers": ["<|tool|>"], "tags": [call], "excludes": ["<|other|>"]}
    index = Index.from_structural_tag({"type": "structural_tag", "format": form}, vocabulary)
    for tokens, expected in [
        ([*b"a", 257, *b"xy", *b"b"], True), ([*b"a<|tool|>xy"], False), ([*b"a<|tool|"], True), ([*b"<|other|>"], False),
        ([*b"<|end|>"], True), ([*b"<<|tool|>"], False),
    ]:  # fmt: skip
        guide = index.guide()
        assert (all(map(guide.advance, tokens)) and guide.can_finish) == expected, tokens


@pytest.mark.parametrize("fields", [{}, {"max_chars": 12}, {"excludes": ["!"]}, {"max_chars": 12, "excludes": ["!"]}])
@pytest.mark.parametrize("end", ["<|end|>", "\n<|end|>", ["</a>", "<|end|>"]])
def test_text_of_any_length_does_not_spell_the_special_token_that_ends_it(
    fields: Any, end: Any, vocabulary: Vocabulary
) -> None:
    form = {"type": "structural_tag", "format": tag("[", {"type": "any_text", **fields}, end)}
    index = Index.from_structural_tag(form, vocabulary)
    for text, expected in [(b"<|other|>", True), (b"<|end|", True), (b"<|end|>", False), (b"a<|end|>b", False)]:
        guide = index.guide()
        assert (all(map(guide.advance, [*b"[", *text, *b"\n", 258])) and guide.can_finish) == expected, text


def test_an_excluded_special_token_is_not_spelt_in_text_of_bounded_length(vocabulary: Vocabulary) -> None:
    form = {"type": "any_text", "max_chars": 12, "excludes": ["a<|other|>"]}
    assert [accepts(form, text, vocabulary) for text in ("<|end|", "a<|other|", "b")] == [True, True, True]
    guide = Index.from_structural_tag({"type": "structural_tag", "format": form}, vocabulary).guide()
    assert not guide.accept_string("<|other|>")


def test_many_triggers() -> None:
    """12,000 once took 27 s: each tag was compared with each trigger."""
    begins = [f"<f{i}>" for i in range(12_000)]
    tags = [
        {"type": "tag", "begin": begin, "content": {"type": "const_string", "value": "x"}, "end": "</f>"}
        for begin in begins
    ]
    with at_most(5):
        structural_tag_to_grammar(
            {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": begins, "tags": tags}}
        )


@pytest.mark.parametrize("field", ["rules", "excludes"])
def test_texts_that_begin_differently(field: str) -> None:
    """After each of them, any other may begin, so time grows with the square of their number: 240 once took 2 s."""
    texts = [f"{chr(0x4E00 + i)}xy" for i in range(1000)]
    rules = [[text, {"type": "const_string", "value": "x"}] for text in texts]
    format = {"type": "dispatch", "rules": rules} if field == "rules" else {"type": "any_text", "excludes": texts}
    with at_most(5), pytest.raises(BudgetExceededError, match="edges"):
        structural_tag_to_grammar({"type": "structural_tag", "format": format})
