"""Arguments in notations without commas: a reader of each notation reads walks back, and `jsonschema` judges them.

The tools use the keywords of real tools, in both orders of keys.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm import Index, UnsupportedError, Vocabulary
from dotllm.errors import SpecError
from tests.cases import few

FLAT = {
    "qwen_xml": "<parameter={key}>{value}</parameter>",
    "qwen_trimmed_xml": "<parameter={key}>{value}</parameter>",
    "minimax_xml": '<parameter name="{key}">{value}</parameter>',
    "glm_xml": "<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
    "deepseek_xml": '<｜DSML｜parameter name="{key}" string="false">{value}</｜DSML｜parameter>',
    "deepseek_v4_1_xml": '<｜DSML｜ parameter name="{key}" string="false">{value}</｜DSML｜ parameter>',
    "kimi_k3_xml": '<|open|>argument key="{key}" type="number"<|sep|>{value}<|close|>argument<|sep|>',
    "cohere_xml": '<cofl:value name="{key}" type="json">{value}</cofl:value>',
    "minimax_m3_xml": "]<]minimax[>[<{key}>{value}]<]minimax[>[</{key}>",
    "gemma": "{key}:{value}",
}
"""A member with a number."""
INTEGER = {"type": "integer"}
CLOSED = {"type": "object", "additionalProperties": False}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None], eos_token_ids=[256])


def index_of(schema: Any, style: str, vocabulary: Vocabulary, *, any_order: bool = False) -> Index:
    form = {"type": "json_schema", "json_schema": schema, "style": style, "any_order": any_order}
    return Index.from_structural_tag({"type": "structural_tag", "format": form}, vocabulary)


def joined(style: str, members: Iterable[str]) -> str:
    """An object with these members."""
    return f"{{{','.join(members)}}}" if style == "gemma" else "".join(members)


def accepts(index: Index, text: str) -> bool:
    config = index.advance_bytes(index.guide().config, text.encode())
    return config >= 0 and index.can_finish(config)


CONDITIONS: list[dict[str, Any]] = [
    {},
    {"required": ["a"]},
    {"required": ["b", "c"]},
    {"minProperties": 2},
    {"maxProperties": 1},
    {"minProperties": 1, "maxProperties": 2, "required": ["c"]},
    {"dependentRequired": {"a": ["b"]}},
    {"not": {"required": ["a", "b"]}},
    {"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]},
]


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("style", FLAT)
def test_every_subset_in_every_order(style: str, any_order: bool, vocabulary: Vocabulary) -> None:
    """Any order was once refused, because a part of an unordered sequence might be empty."""
    for condition in CONDITIONS:
        schema = {**CLOSED, "properties": dict.fromkeys("abc", INTEGER), **condition}
        index = index_of(schema, style, vocabulary, any_order=any_order)
        for size in range(4):
            for keys in itertools.permutations("abc", size):
                text = joined(style, (FLAT[style].format(key=key, value=i) for i, key in enumerate(keys)))
                valid = Draft202012Validator(schema).is_valid(dict.fromkeys(keys, 1))
                expected = valid and (any_order or list(keys) == sorted(keys))
                assert accepts(index, text) == expected, (condition, text)
        twice = joined(style, (FLAT[style].format(key=key, value=1) for key in "bcb"))
        assert not accepts(index, twice)


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("style", [style for style in FLAT if style != "minimax_m3_xml"])
def test_what_is_required_need_not_be_declared(style: str, any_order: bool, vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a": INTEGER}, "required": ["a", "x"]}
    index = index_of(schema, style, vocabulary, any_order=any_order)
    raw = FLAT[style].replace('"false"', '"true"').replace('"number"', '"string"').replace('"json"', '"raw"')
    string = '<|"|>s<|"|>' if style == "gemma" else "s"
    a, x = FLAT[style].format(key="a", value=1), raw.format(key="x", value=string)
    assert accepts(index, joined(style, [a, x]))
    assert accepts(index, joined(style, [x, a])) == any_order
    assert not accepts(index, joined(style, [a])) and not accepts(index, joined(style, [x]))


@pytest.mark.parametrize("style", ["cohere_xml", "minimax_m3_xml", "gemma"])
@pytest.mark.parametrize("length", [{}, {"minItems": 2}, {"maxItems": 2}, {"minItems": 1}])
def test_unique_members_of_an_enumeration(style: str, length: dict[str, int], vocabulary: Vocabulary) -> None:
    items = {"type": "array", "uniqueItems": True, "items": {"enum": ["p", "q", "r"]}, **length}
    schema = {**CLOSED, "properties": {"a": items}, "required": ["a"]}
    index = index_of(schema, style, vocabulary)
    for size in range(5):
        for values in itertools.product("pqr", repeat=size):
            if style == "cohere_xml":
                inner = "".join(f'<cofl:value type="raw">{value}</cofl:value>' for value in values)
                text = f'<cofl:value name="a" type="list">{inner}</cofl:value>'
            elif style == "gemma":
                inner = ",".join(f'<|"|>{value}<|"|>' for value in values)
                text = f"{{a:[{inner}]}}"
            else:
                text = FLAT[style].format(
                    key="a", value="".join(FLAT[style].format(key="item", value=v) for v in values)
                )
            assert accepts(index, text) == Draft202012Validator(items).is_valid([*values]), text


def test_kimi_k3_escapes_keys(vocabulary: Vocabulary) -> None:
    for key, written in [("a&amp;b", "a&amp;amp;b"), ('say "x"', "say &quot;x&quot;"), ("<b>", "<b>"), ("&", "&amp;")]:
        schema = {**CLOSED, "properties": {key: INTEGER}, "required": [key]}
        index = index_of(schema, "kimi_k3_xml", vocabulary)
        assert accepts(index, FLAT["kimi_k3_xml"].format(key=written, value=1))
        assert written == key or not accepts(index, FLAT["kimi_k3_xml"].format(key=key, value=1))


@pytest.mark.parametrize("style", [style for style in FLAT if style != "minimax_m3_xml"])
def test_a_count_of_keys_that_are_not_named_says_the_way_out(style: str, vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "additionalProperties": INTEGER, "minProperties": 2}
    with pytest.raises(UnsupportedError, match="minProperties") as caught:
        index_of(schema, style, vocabulary)
    assert "name the keys under properties" in str(caught.value)
    assert index_of({**schema, "minProperties": 1}, style, vocabulary)


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("style", FLAT)
def test_counts_of_many_keys(style: str, any_order: bool, vocabulary: Vocabulary) -> None:
    names = [f"p{i}" for i in range(15)]
    schema = {**CLOSED, "properties": dict.fromkeys(names, INTEGER), "minProperties": 3, "required": ["p4"]}
    index, random = index_of(schema, style, vocabulary, any_order=any_order), Random(style)
    for _ in range(200):
        keys = random.sample(names, random.randint(0, 6))
        keys = keys if random.random() < 0.5 else sorted(keys, key=names.index)
        text = joined(style, (FLAT[style].format(key=key, value=1) for key in keys))
        valid = len(keys) >= 3 and "p4" in keys and (any_order or keys == sorted(keys, key=names.index))
        assert accepts(index, text) == valid, text


def value(random: Random, depth: int) -> Any:
    """The schema of an argument, of a kind that occurs in tools."""
    inner = depth > 0
    return random.choice([
        lambda: {"type": "string", "description": "d"}, lambda: {"enum": ["a", "b", "c d"]}, lambda: {"type": "boolean"},
        lambda: {"type": "integer", "minimum": 0, "default": 3}, lambda: {"type": "number", "maximum": 5},
        lambda: {"type": ["string", "null"]}, lambda: {"enum": ['say "hi"', "it's", "a<b", "x&y", 5]},
        lambda: {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, lambda: {"$ref": "#/$defs/N"},
        lambda: {"const": random.choice(["k", 5, None, True])},
        lambda: {"type": "array", "items": value(random, depth - 1) if inner else INTEGER, "maxItems": 2},
        lambda: {"type": "object", "additionalProperties": value(random, 0)},
        lambda: {"anyOf": [value(random, depth - 1), value(random, 0)]} if inner else {"type": "null"},
        lambda: tool(random, depth - 1) if inner else INTEGER,
    ])()  # fmt: skip


def tool(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(["a", "b", "startDate", "file_path", "x-y", "content"], random.randint(0, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: value(random, depth) for name in names},
        "required": [name for name in names if random.random() < 0.5],
    }
    if random.random() < 0.5:
        schema["additionalProperties"] = random.choice([False, False, True, value(random, 0)])
    if names and random.random() < 0.15:
        schema["minProperties"] = 1
    if len(names) > 1 and random.random() < 0.3:
        schema |= random.choice([{"dependentRequired": {names[0]: [names[1]]}}, {"maxProperties": len(names)}])
    return schema


def arguments(style: str, text: str) -> dict[str, Any]:
    """What a reader of the style makes of ``text``."""
    if style == "cohere_xml":
        found, end = members(text, 0)
        assert end == len(text)
        return dict(found)
    if style == "gemma":
        value, end = gemma_value(text, 0)
        assert end == len(text) and isinstance(value, dict)
        return value
    key, kind, rest = {
        "deepseek_xml": (
            r'<｜DSML｜parameter name="([^"]*)"',
            r' string="(true|false)">',
            r"(.*?)</｜DSML｜parameter>",
        ),
        "kimi_k3_xml": (
            r'<\|open\|>argument key="([^"]*)"',
            r' type="(\w+)"<\|sep\|>',
            r"(.*?)<\|close\|>argument<\|sep\|>",
        ),
    }[style]
    found = {}
    for name, said, raw in re.findall(f"{key}{kind}{rest}", text, re.DOTALL):
        found[html.unescape(name)] = raw if said in ("true", "string") else json.loads(raw)
    assert not re.sub(f"{key}{kind}{rest}", "", text, flags=re.DOTALL).strip()
    return found


def members(text: str, at: int) -> tuple[list[tuple[str, Any]], int]:
    """The values of cohere_xml from ``at`` on, with their names, and where they end."""
    found = []
    opening = re.compile(r'\s*<cofl:value(?: name="([^"]*)")? type="(\w+)">')
    while (match := opening.match(text, at)) is not None:
        name, kind, at = html.unescape(match[1] or ""), match[2], match.end()
        if kind in ("raw", "json"):
            end = text.index("</cofl:value>", at)
            read: Any = text[at:end] if kind == "raw" else json.loads(text[at:end])
        else:
            inner, end = members(text, at)
            read = dict(inner) if kind == "dict" else [one for _, one in inner]
        at = text.index("</cofl:value>", end) + len("</cofl:value>")
        found.append((name, read))
    return found, at + len(text[at:]) - len(text[at:].lstrip())


def gemma_value(text: str, at: int) -> tuple[Any, int]:
    """The value in Gemma's notation at ``at``, and where it ends."""
    blank = re.compile(r"\s*")

    def skip(at: int) -> int:
        return blank.match(text, at).end()  # type: ignore[union-attr]

    if text.startswith('<|"|>', at):
        end = text.index('<|"|>', at + 5)
        return text[at + 5 : end], end + 5
    if text[at] not in "[{":
        return json.JSONDecoder().raw_decode(text, at)
    inside: list[Any] = []
    closing, end = "]}"[text[at] == "{"], skip(at + 1)
    while text[end] != closing:
        if inside:
            assert text[end] == ","
            end = skip(end + 1)
        key = None
        if closing == "}":
            colon = text.index(":", end)
            key, end = text[end:colon].rstrip(), skip(colon + 1)
        value, end = gemma_value(text, end)
        inside.append(value if key is None else (key, value))
        end = skip(end)
    return dict(inside) if closing == "}" else inside, end + 1


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("style", ["deepseek_xml", "kimi_k3_xml", "cohere_xml", "gemma"])
def test_walks_are_valid_arguments(style: str, any_order: bool, vocabulary: Vocabulary) -> None:
    read = 0
    for seed in range(few(60)):
        random = Random(f"{style} {seed}")
        schema = tool(random, 2)
        schema["$defs"] = {"N": {**CLOSED, "properties": {"v": INTEGER, "next": {"$ref": "#/$defs/N"}}}}
        guide = index_of(schema, style, vocabulary, any_order=any_order).guide()
        text = bytearray()
        while len(text) < 1500 and not (guide.can_finish and random.random() < 0.5):
            allowed = [token for token in guide.allowed_tokens() if token < 256]
            likely = (
                [token for token in allowed if chr(token) in '<>"/ }]' or token >= 128] if random.random() < 0.3 else []
            )
            if not allowed:
                break
            text.append(random.choice(likely or allowed))
            assert guide.advance(text[-1])
        if not guide.can_finish or re.search(rb"\d{15}|[eE][+-]?\d", text):
            continue
        found = arguments(style, text.decode())
        Draft202012Validator(schema).validate(found)
        read += 1
    assert read > few(60) / 3


@pytest.mark.parametrize("style", FLAT)
def test_no_tool_is_refused_with_an_internal_message(style: str, vocabulary: Vocabulary) -> None:
    for seed in range(60):
        schema = {**tool(Random(seed), 2), "$defs": {"N": {**CLOSED, "properties": {"v": INTEGER}}}}
        for any_order in (False, True):
            try:
                index_of(schema, style, vocabulary, any_order=any_order)
            except SpecError as error:
                assert style == "minimax_m3_xml" and "minimax_m3_xml cannot" in error.message, (schema, error)


@pytest.mark.parametrize("name", ["", "a:b", " a", "a ", ",a", "a{", "a]", 'a<|"|>'])
def test_a_name_that_gemmas_readers_lose_is_refused(name: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedError, match="rename it"):
        index_of({"type": "object", "properties": {name: INTEGER}}, "gemma", vocabulary)
    index = index_of({"type": "object", "additionalProperties": INTEGER}, "gemma", vocabulary)
    assert accepts(index, f"{{{name}:1}}") == (name in (" a", "a "))  # (white space around the key a)


def test_gemmas_strings_and_keys(vocabulary: Vocabulary) -> None:
    """Strings end at the mark, and hold anything else; keys of a map are what readers find again."""
    text = {**CLOSED, "properties": {"s": {"type": "string"}}, "required": ["s"]}
    for inside in ("", '"', "{,:]}", "\n", "<|", '<|"|', "é"):
        assert accepts(index_of(text, "gemma", vocabulary), f'{{s:<|"|>{inside}<|"|>}}')
    for wrong in ('{s:"x"}', "{s:x}", '{"s":<|"|>x<|"|>}', '{s:<|"|>x<|"|><|"|>}', 's:<|"|>x<|"|>'):
        assert not accepts(index_of(text, "gemma", vocabulary), wrong)
    cities = index_of(
        {"type": "object", "additionalProperties": {"type": "array", "items": INTEGER}}, "gemma", vocabulary
    )
    assert accepts(cities, "{New York:[1,2],x-1:[],2026-11-30:[3]}")
    short = {**CLOSED, "properties": {"s": {"type": "string", "maxLength": 2, "pattern": "^a"}}, "required": ["s"]}
    assert accepts(index_of(short, "gemma", vocabulary), '{s:<|"|>ab<|"|>}')
    assert not accepts(index_of(short, "gemma", vocabulary), '{s:<|"|>abc<|"|>}')
    assert not accepts(index_of(short, "gemma", vocabulary), '{s:<|"|>ba<|"|>}')
