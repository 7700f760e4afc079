"""A quoted text is a text of the grammar, and vice versa: walks in both directions; Python's ``json`` judges JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dotllm import Index, SpecError
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.grammar import Grammar
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.quoted import Quoting, quoted

PATCH = (Path(__file__).parents[1] / "corpus" / "apply_patch.lark").read_text(encoding="utf-8")
"""Codex's own grammar of ``apply_patch``."""
GRAMMARS = {
    "patch": PATCH,
    "left recursion": 'start: start "+" t | t\nt: "(" start ")" | /[0-9<]+/ | "</a>"',
    "ignored": 'start: (A ",")* A\nA: /[a-c<\\/>]{2,5}/\n%ignore " "',
    "counted": 'start: x{3,40}\nx: "<" | "/a>" | "\\n" | "\\\\"',
    "words": 'start: ("a" | "é</a" | ">" | "\\t\\"" | "｜x｜>")+',
    "json": 'start: "<" %json {"type": "object", "properties": {"</a>": {"type": "string", "maxLength": 5}}} ">"',
    "enum": 'start: %json {"enum": ["</a>", "<a", "a\\\\n", "é"]} "!"',
    "begins": 'start: ("(" a | b)~1..3\na: "<" b ")" | b\nb: ";" /[^\\n]{1,3}/ | c "?" | b "!"\nc: "/"? | d d\nd: "a>"?',
    "lazy": 'start: HEAD "x"\nHEAD[lazy]: /[^\\n]*<\\/a/',
}
MARKS = {"none": [], "one": ["</a>"], "several": ["</a>", "<a", "<｜x｜>"]}


def index_of(definition: str, marks: list[str], *, in_json: bool) -> Index:
    grammar = Grammar()
    text = quoted(grammar_to_grammar(definition, "lark"), grammar, Quoting(marks, in_json=in_json))
    quote = grammar.literal('"') if in_json else grammar.empty()
    grammar.start = grammar.seq([quote, text, quote])
    return Index.from_grammar_object(grammar, byte_vocabulary())


def walk(index: Index, random: Random) -> str:
    """A random text that often comes close to marks."""
    guide, text = index.guide(), bytearray()
    most = guide.tokens_to_finish + random.randint(0, 60)
    while not (guide.can_finish and random.random() < 0.1):
        row = guide.mask_within(most - len(text))
        row = index.masks[guide.mask_row] if row is None else row
        allowed = [t for t in np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))[0].tolist() if t < 256]
        if not allowed:
            break
        likely = [token for token in allowed if token in b'</a>\\"'] if random.random() < 0.6 else allowed
        text.append(random.choice(likely or allowed))
        assert guide.advance(text[-1])
    return text.decode()


def accepts(index: Index, text: str) -> bool:
    guide = index.guide()
    return all(map(guide.advance, text.encode())) and guide.can_finish


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("definition", GRAMMARS.values(), ids=GRAMMARS)
def test_texts_of_a_grammar_are_quoted_and_no_others(definition: str, marks: list[str]) -> None:
    plain, random = Index.from_grammar(definition, byte_vocabulary()), Random(definition)
    in_json, raw = (index_of(definition, marks, in_json=flag) for flag in (True, False))
    for _ in range(12):
        written = walk(in_json, random)
        assert not any(mark in written for mark in marks)
        assert accepts(plain, json.loads(written))
        as_it_is = walk(raw, random)
        assert not any(mark in as_it_is for mark in marks) and accepts(plain, as_it_is)
        text = walk(plain, random)
        found = Quoting(marks, in_json=True).text(0, text.encode())
        assert found is not None and accepts(in_json, f'"{found[0].decode()}"')
        assert json.loads(f'"{found[0].decode()}"') == text
        assert accepts(raw, text) is not any(mark in text for mark in marks)


def test_counts_in_counts_are_not_too_large() -> None:
    """Once the texts of each state at the end had a copy of the whole, and each edge had a copy of all escapes."""
    inner = r'(?:"?|[A-F0-9]{2,5})?(?:[^\n]{1,4}[^\n]{1,4}|[^\n]?[é-ü]?[^\n]| ){1,4}'
    pattern, random = rf'a{{1,4}}(?:(?:[0-9]|["\\<>\/]{{1,4}})?{inner}){{1,4}}', Random(0)
    index = index_of(f"start: /{pattern}/", ["</tool_call>", "<tool_call>"], in_json=True)
    for _ in range(5):
        assert re.fullmatch(pattern, json.loads(walk(index, random)))


def test_a_rule_has_no_copy_for_each_state_in_which_it_may_begin() -> None:
    """Its first characters are in no mark, so all states write the same. (There was once a copy per pair of states.)"""
    definition = (
        'start: "(" a~1..3 | a~1..3\na: ")" b | "if(" b~1..3\n'
        'b: "é" /["<>\\/]{1,5}/ /[^\\n]{1,2}/~1..3 ")" | c\nc: ";" /[^\\n]{1,6}/ /[^\\n]{1,6}/'
    )
    grammar = Grammar()
    marks = ["</tool_call>", "<tool_call>"]
    quoted(grammar_to_grammar(definition, "lark"), grammar, Quoting(marks, in_json=True))
    assert len(grammar.rule_names) < 100


def test_json_has_one_spelling() -> None:
    index = index_of('start: "é\\n/"', [], in_json=True)
    assert accepts(index, '"é\\n/"')
    assert not any(accepts(index, text) for text in ('"\\u00e9\\n/"', '"é\\u000a/"', '"é\\n\\/"', '"é\n/"'))


def test_the_closing_text_is_found_where_it_stands() -> None:
    """A text is left out if its end forms a mark with the beginning of the closing text."""
    grammar, source = Grammar(), grammar_to_grammar('start: "x" | "x<"', "lark")
    quoting = Quoting(["<<", "</a>"], in_json=False)
    grammar.start = grammar.seq([quoted(source, grammar, quoting, "</a>"), grammar.literal("</a>")])
    index = Index.from_grammar_object(grammar, byte_vocabulary())
    assert accepts(index, "x</a>") and not accepts(index, "x<</a>")


@pytest.mark.parametrize(
    "definition",
    ["start: <[1]>", 'start: %json {"type": "array", "uniqueItems": true}', "start: /a{0,1000000}/"],
)
def test_what_cannot_be_quoted_is_refused(definition: str) -> None:
    with pytest.raises(SpecError, match="quoted in a call"):
        index_of(definition, [], in_json=True)


TAG = {"type": "json_schema", "json_schema": {"type": "object"}, "excludes": []}
WRITTEN = {
    "json": '{"input": "a\\n"}',
    "qwen_xml": "<parameter=input>a\n</parameter>",
    "qwen_trimmed_xml": "<parameter=input>\na\n\n</parameter>",
    "minimax_xml": '<parameter name="input">a\n</parameter>',
    "glm_xml": "<arg_key>input</arg_key>\n<arg_value>a\n</arg_value>",
    "deepseek_xml": '<｜DSML｜parameter name="input" string="true">a\n</｜DSML｜parameter>',
    "kimi_k3_xml": '<|open|>argument key="input" type="string"<|sep|>a\n<|close|>argument<|sep|>',
    "cohere_xml": '<cofl:value name="input" type="raw">a\n</cofl:value>',
    "minimax_m3_xml": "]<]minimax[>[<input>a\n]<]minimax[>[</input>",
    "gemma": '{input:<|"|>a\n<|"|>}',
}


@pytest.mark.parametrize(("style", "written"), WRITTEN.items(), ids=WRITTEN)
def test_the_argument_in_every_style(style: str, written: str) -> None:
    for syntax, definition in (("lark", 'start: "a\\n"'), ("regex", r"a\n")):
        form = {**TAG, "style": style, "input_grammar": {"syntax": syntax, "definition": definition}}
        index = Index.from_structural_tag({"type": "structural_tag", "format": form}, byte_vocabulary())
        assert accepts(index, written) and not accepts(index, written.replace("a", "b", 1))


@pytest.mark.parametrize(
    ("grammar", "pointer"),
    [
        ({"syntax": "lark", "definition": "start: a"}, "/format/input_grammar/definition"),
        ({"syntax": "regex", "definition": "(a"}, "/format/input_grammar/definition"),
        ({"syntax": "ebnf", "definition": "a"}, "/format/input_grammar/syntax"),
        ({"syntax": "lark", "definition": 'start: start "a"'}, "/format/input_grammar/definition"),
        ({"syntax": "lark", "definition": "start: T\nT: /(?=a)b/"}, "/format/input_grammar/definition"),
        ({"syntax": "regex", "definition": "(?!)"}, "/format/input_grammar/definition"),
        ({"syntax": "lark", "definition": 'start: "a"', "flags": 1}, "/format/input_grammar/flags"),
        ("start: a", "/format/input_grammar"),
    ],
)
def test_a_grammar_that_is_refused_says_where(grammar: object, pointer: str) -> None:
    form = {**TAG, "input_grammar": grammar}
    with pytest.raises(SpecError) as caught:
        Index.from_structural_tag({"type": "structural_tag", "format": form}, byte_vocabulary())
    assert caught.value.pointer == pointer
    others = {"type": "or", "elements": [{"type": "const_string", "value": "x"}, form]}
    with pytest.raises(SpecError) as caught:
        Index.from_structural_tag({"type": "structural_tag", "format": others}, byte_vocabulary())
    assert caught.value.pointer == pointer.replace("/format", "/format/elements/1")
