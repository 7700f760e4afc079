"""Random input: regular expressions, schemas, grammars, structural tags, request bodies, arrays, vocabularies.

About half of each kind of input is valid, and the other half is nearly valid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from tests.languages.grammar_cases import cases

ATOMS = [
    "a", "b", "ab", "1", ".", r"\d", r"\w", r"\s", r"\D", r"\W", "[ab]", "[^a]", "[a-c1]", r"[\d-]", "[]a]", "[^\\]]", r"\.", "é",
    r"\u00e9", r"\x41", "(?i:A)", "^", "$", r"\b", r"\B", r"\Z", r"\A", "-", " ", "\n", r"\n", "{", "}", "😀", r"\\", "/",
]  # fmt: skip
QUANTIFIERS = [
    "*",
    "+",
    "?",
    "{2}",
    "{1,3}",
    "{,2}",
    "{2,}",
    "*?",
    "+?",
    "{0}",
    "{0,0}",
    "*+",
    "{3}?",
    "{40}",
    "{1,300}",
]
AROUND = [
    "({})",
    "(?:{})",
    "(?={})",
    "(?!{})",
    "(?<={})",
    "(?<!{})",
    "(?P<n>{})",
    "(?i:{})",
    "(?s:{})",
    "(?>{})",
    "[{}]",
]
SOUP = [
    *"()[]{}|*+?^$\\.,-",
    "(?",
    "(?P=n)",
    r"\1",
    r"\p{L}",
    "[[",
    "&&",
    "{1",
    "(?#",
    "(?x) ",
    "\0",
    "\ud800",
    "[z-a]",
    "{9999}",
]
TEXT = [*"ab1 -\n.", "é", "A", "😀", "_", "{", "\\", "\r"]
ODD: list[Any] = [
    None, True, -1, 0, 1, 10**19, -(10**19), 0.5, 1e308, -0.0, "", "a", "é", "\ud800", "\0", [], {}, [None], {"": None}, [[]],
    "#", "#/$defs/p", "^a", "(", "a" * 300, 1e-9, 2**53 + 1, ["a", "a"], {"type": "string"}, {"$ref": "#"},
]  # fmt: skip
SCHEMA_WORDS = [
    "type", "properties", "required", "items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
    "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "$id", "$anchor", "$dynamicRef", "$schema", "if", "then", "else",
    "minimum", "multipleOf", "additionalProperties", "patternProperties", "propertyNames", "uniqueItems", "contains", "minContains",
    "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "minProperties", "x-unknown",
    "string", "object", "array", "integer", "number", "date-time", "email", "uuid", "ipv4", "uri", "time", "regex",
]  # fmt: skip
TAG_WORDS = [
    "type", "format", "tag", "begin", "content", "end", "triggers", "tags", "triggered_tags", "tags_with_separator", "separator",
    "sequence", "elements", "or", "any_text", "const_string", "value", "json_schema", "regex", "pattern", "grammar", "at_least_one",
    "stop_after_first", "excludes", "structures", "schema", "qwen_xml_parameter", "token", "optional", "star", "plus", "repeat",
]  # fmt: skip
BODY_WORDS = [
    "response_format", "structured_outputs", "tools", "tool_choice", "json", "regex", "choice", "grammar", "structural_tag", "json_object",
    "json_schema", "strict", "name", "parameters", "function", "type", "auto", "required", "none", "text", "whitespace_pattern",
    "disable_any_whitespace", "stop_token_ids", "n", "logprobs", "best_of", "min_tokens", "max_tokens", "schema", "description",
    "text", "format", "output_config", "output_format", "input_schema", "stop", "bad_words", "vllm_xargs", "guided_json", "input", "prompt",
]  # fmt: skip


def odd(random: Random) -> Any:
    """A number, or a value that only resembles one."""
    return random.choice([0, 1, 2, 3, 97, 98, 270, 271, -1, -2, 10**6, 2**31, 2**63, -(2**63), 1.0, None, "1", True, np.int64(1), np.float32(1), np.int32(97)])  # fmt: skip


def regex(random: Random, depth: int = 3) -> str:
    """A pattern, mostly in the syntax that `re` and dotllm share."""
    pick = random.random()
    if depth == 0 or pick < 0.3:
        return random.choice(ATOMS[:15] if random.random() < 0.7 else ATOMS)
    if pick < 0.55:
        return regex(random, depth - 1) + regex(random, depth - 1)
    if pick < 0.7:
        return "(?:" + "|".join(regex(random, depth - 1) for _ in range(random.randint(1, 3))) + ")"
    if pick < 0.86:
        return f"(?:{regex(random, depth - 1)}){random.choice(QUANTIFIERS)}"
    if pick < 0.96:
        return random.choice(AROUND).format(regex(random, depth - 1))
    made = regex(random, depth - 1)
    at = random.randint(0, len(made))
    return made[:at] + random.choice(SOUP) + made[at:]


def bounded_string(random: Random) -> Any:
    """A schema whose strings have a pattern and bounds, alone or inside an array or object."""
    made: Any = {"type": "string", "pattern": random.choice(["^", ""]) + regex(random, 2) + random.choice(["$", ""])}
    if random.random() < 0.7:
        made["maxLength"] = random.choice([0, 1, 2, 3, 5, 30])
    if random.random() < 0.4:
        made["minLength"] = random.choice([0, 1, 2, 3, 5])
    return random.choice([made, {"type": "array", "items": made, "minItems": 1}, {"properties": {"a": made}, "required": ["a"], "type": "object"}])  # fmt: skip


def size(random: Random) -> Any:
    """A number of items, characters or properties: small, or at a point where something may overflow."""
    if random.random() < 0.5:
        return random.randint(0, 4)
    return random.choice(
        [16, 100, 128, 256, 1000, 2**15 - 1, 2**15, 2**16, 10**6, 2**24, 2**31 - 1, 2**31, 10**9, 2**32, 2**53, 2**63, 10**18, 10**30, 3.0, 1e3, 1e300]
    )  # fmt: skip


def sized(random: Random, depth: int = 3) -> Any:
    """A schema of counts and bounds, small and huge."""
    pick = random.random()
    if depth == 0 or pick < 0.3:
        made: Any = {"type": "string"}
        words = ["minLength", "maxLength"]
        if random.random() < 0.3:
            made["pattern"] = random.choice(["^a*$", "^(ab|c)+$", "b$", "^[0-9]{2,5}$"])
    elif pick < 0.6:
        made = {"type": "array", "items": random.choice([sized(random, depth - 1), True, {"enum": [1, 22]}])}
        words = ["minItems", "maxItems"]
        if random.random() < 0.2:
            made["contains"] = random.choice([{"const": 1}, True, {"type": "string"}])
            words += ["minContains", "maxContains"]
        if random.random() < 0.1:
            made["uniqueItems"] = True
    elif pick < 0.85:
        made = {"type": "object", "properties": {name: sized(random, depth - 1) for name in "ab"}}
        made["required"] = random.choice([[], ["a"], ["b", "a"]])
        made["additionalProperties"] = random.choice([False, True, sized(random, depth - 1)])
        words = ["minProperties", "maxProperties"]
    elif pick < 0.95:
        return {random.choice(["anyOf", "oneOf", "allOf"]): [sized(random, depth - 1) for _ in range(2)]}
    else:
        made = {"type": random.choice(["integer", "number"])}
        words = ["minimum", "maximum", "multipleOf", "exclusiveMinimum"]
    return made | {word: size(random) for word in words if random.random() < 0.5}


def growing(random: Random) -> Any:
    """A schema whose answers keep adding states: nested counters, sets of earlier items or keys, deep stacks."""
    names = [f"n{i}" for i in range(random.randint(3, 30))]
    pick = random.randrange(6)
    if pick == 0:
        return {"type": "array", "items": {"enum": names}, "uniqueItems": True}
    if pick == 1:
        return {"type": "object", "properties": {name: {"type": "boolean"} for name in names}}
    if pick == 2:
        word = {"type": "string", "minLength": 1, "maxLength": random.randint(20, 200)}
        return {"type": "array", "items": {"type": "array", "items": word, "maxItems": 50}, "maxItems": 50}
    if pick == 3:
        item = random.choice([{"type": "integer"}, {"type": ["string", "array", "boolean"]}])
        return {"type": "array", "items": item, "uniqueItems": True}
    if pick == 4:
        return {"type": "object", "additionalProperties": {"enum": names[:3]}, "minProperties": 2, "maxProperties": 40}
    node = {"type": "object", "properties": {"l": {"$ref": "#/$defs/n"}, "v": {"enum": names}}, "required": ["v"]}
    return {"$defs": {"n": {"anyOf": [node, {"type": "array", "items": {"$ref": "#/$defs/n"}}]}}, "$ref": "#/$defs/n"}


def sized_regex(random: Random, depth: int = 3) -> str:
    """A regular expression of repetitions, with small and huge counts."""
    if depth == 0:
        return random.choice(["a", "[ab]", "ab", ".", r"\d"])
    inner = sized_regex(random, depth - 1)
    low, high = (min(int(size(random)), 10**30) for _ in range(2))
    times = random.choice([f"{{{low}}}", f"{{{low},}}", f"{{{min(low, high)},{max(low, high)}}}", "*", "?"])
    return random.choice([f"(?:{inner}){times}", f"(?:{inner}){times}", f"(?:{inner}|b{inner})", f"{inner};{inner}"])


def texts(random: Random, pattern: str) -> list[str]:
    """Short texts of characters that occur in patterns."""
    letters = [*TEXT, *[one for one in pattern if one.isalnum()]]
    return ["".join(random.choice(letters) for _ in range(random.randint(0, 6))) for _ in range(12)]


def spoilt(random: Random, value: Any, words: Sequence[str]) -> Any:
    """A JSON value with some of its parts changed."""
    for _ in range(random.choice([1, 1, 2, 4])):
        value = _spoilt_once(random, value, words)
    return value


def _spoilt_once(random: Random, value: Any, words: Sequence[str]) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.75:
        key = random.choice(list(value))
        return {**value, key: _spoilt_once(random, value[key], words)}
    if isinstance(value, list) and value and random.random() < 0.75:
        at = random.randrange(len(value))
        return [*value[:at], _spoilt_once(random, value[at], words), *value[at + 1 :]]
    new = random.choice([*ODD, random.choice(words), random.choice(words), [random.choice(words)]])
    pick = random.random()
    if isinstance(value, dict) and pick < 0.6:
        return {**value, random.choice(words): new}
    if isinstance(value, dict) and value and pick < 0.8:
        gone = random.choice(list(value))
        return {key: one for key, one in value.items() if key != gone}
    if isinstance(value, list) and pick < 0.6:
        return [*value, new]
    if pick > 0.97:
        for _ in range(random.choice([5, 60, 900])):
            new = {random.choice(words): new} if random.random() < 0.7 else [new]
    return new


def spoilt_bytes(random: Random, data: bytes) -> bytes:
    """``data`` with parts cut, changed or added; sometimes unchanged."""
    for _ in range(random.choice([0, 1, 1, 1, 2, 5])):
        at = random.randint(0, len(data))
        pick = random.random()
        if pick < 0.25:
            data = data[:at] + data[at + random.choice([1, 1, 4, 100]) :]
        elif pick < 0.5:
            data = data[:at] + bytes([random.randrange(256)]) + data[at:]
        elif pick < 0.9 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
        else:
            data = data[:at]
    return data


def grammar(random: Random) -> str:
    """A grammar of the corpus, perhaps with pieces moved, dropped or replaced by pieces of another grammar."""
    case = random.choice(cases())
    text = case.grammar
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        other = random.choice([text, random.choice([one for one in cases() if one.notation == case.notation]).grammar])
        start = random.randint(0, max(0, len(other) - 1))
        piece = other[start : start + random.choice([1, 2, 5, 20])]
        at = random.randint(0, len(text))
        cut = at + random.choice([0, 0, 1, 3, 10])
        text = text[:at] + random.choice([piece, piece, "", *'|*+?()[]"/~.:\n']) + text[cut:]
    return text


def recursion(random: Random) -> str:
    """A grammar whose rules call themselves at or near their ends."""
    count = random.randint(1, 3)

    def text() -> str:
        return random.choice(['"a"', '"b"', '","', '"ab"', "/a|b/", "/b+/"])

    def part() -> str:
        rule = f"r{random.randrange(count)}"
        return random.choice(
            [text(), text(), rule, rule, f"({text()} {rule})?", f"{text()}?", f"({text()} {rule} {text()}?)~0..2", f"{rule}*"]
        )  # fmt: skip

    def choice() -> str:
        return " ".join([random.choice([text(), text(), part()]), *(part() for _ in range(random.randint(0, 3)))])

    rules = [f"r{i}: " + " | ".join([text(), *(choice() for _ in range(random.randint(1, 4)))]) for i in range(count)]
    start = [random.choice(["", text()]), "r0", random.choice(["", text(), f"{text()}?"])]
    return "\n".join([f"start: {' '.join(start)}", *rules])


def structural_tag(random: Random, depth: int = 3) -> Any:
    if random.random() < 0.1:
        tags = [
            {"begin": f"<f={i}>", "schema": {"type": "integer"}, "end": random.choice(["</f>", ""])} for i in range(2)
        ]
        return {"type": "structural_tag", "structures": tags, "triggers": ["<f="]}
    return {"type": "structural_tag", "format": _format(random, depth)}


def _format(random: Random, depth: int) -> Any:
    def tag() -> Any:
        end: Any = random.choice(["</f>", "", ["</f>", "!"], "]"])
        return {
            "type": "tag",
            "begin": random.choice(["<f=1>", "<f=2>", "[", "<tool_call>"]),
            "content": _format(random, depth - 1),
            "end": end,
        }

    leaves: list[Callable[[], Any]] = [
        lambda: {"type": "const_string", "value": random.choice(["", "a", "<tool_call>", "é"])},
        lambda: {"type": "json_schema", "json_schema": random.choice([{"type": "integer"}, {}, {"enum": ["a", 1]}])},
        lambda: {"type": "regex", "pattern": random.choice(["a*", "[ab]{1,3}", "(", ".*"])},
        lambda: {"type": "grammar", "grammar": random.choice(['root ::= "a" | "b" root', 'start: "a"+', "x"])},
        lambda: {"type": "any_text", **random.choice([{}, {"excludes": ["<f", "a"]}])},
    ]
    several: list[Callable[[], Any]] = [
        lambda: {"type": random.choice(["sequence", "or"]), "elements": [_format(random, depth - 1) for _ in range(random.randint(0, 3))]},
        tag,
        lambda: {
            "type": "triggered_tags", "triggers": random.choice([["<f="], ["<", "["], ["<f=1", "<"], ["<tool_call>", "["], ["<f=1", "<f=2", "["]]), "tags": [tag() for _ in range(random.randint(1, 2))],
            **random.choice([{}, {"at_least_one": True}, {"stop_after_first": True}, {"excludes": ["b"]}]),
        },
        lambda: {"type": random.choice(["optional", "plus", "star"]), "content": _format(random, depth - 1)},
        lambda: {"type": "repeat", "min": random.randint(0, 2), "max": random.choice([-1, 2, 3]), "content": _format(random, depth - 1)},
        lambda: {"type": "dispatch", "rules": [[random.choice(["<f=", "a", "<tool_call>"]), _format(random, depth - 1)]], "loop": random.random() < 0.7},
        lambda: {"type": "tags_with_separator", "tags": [tag()], "separator": random.choice([";", "", "<tool_call>"]), "at_least_one": random.random() < 0.5},
    ]  # fmt: skip
    made: Any = random.choice(leaves if depth == 0 or random.random() < 0.3 else several)()
    return made


def array(random: Random, words: int) -> Any:
    """A bitmask or logits as callers may pass them: any shape, dtype or layout."""
    width = max(0, words + random.choice([0, 0, 0, 1, 5, -1, -words]))
    shape: Any = random.choice([(1, width), (5, width), (5, width), (width,), (2, 2, width), (0, width), ()])
    dtype = random.choice(["i4", "i4", "i4", "i8", "u4", "f4", "f2", "f8", "?", ">i4", "O"])
    made = np.zeros(shape, dtype)
    pick = random.random()
    if pick < 0.1:
        made.flags.writeable = False
    elif pick < 0.3 and made.ndim == 2:
        made = random.choice(
            [made[::-1], made[:, ::-1], made.T, np.asfortranarray(made), np.zeros((9, 2 * width), dtype)[::2, ::2]]
        )
    elif pick < 0.4:
        return random.choice([made.tolist(), None, b"abc", memoryview(b"\0" * 64), np.ma.array(made), math.pi])
    return made


def tokens(random: Random) -> list[bytes | None]:
    """All bytes or some, and words, with repeated and empty tokens and ids without a token; the last is the end."""
    single = [bytes([byte]) for byte in range(256)]
    if random.random() < 0.3:
        single = random.sample(single, random.choice([1, 100, 250]))
    words = [
        bytes(random.choice(b'ab"\xc3\xa9\xff ') for _ in range(random.choice([0, 1, 2, 3, 3, 8, 40])))
        for _ in range(random.choice([0, 5, 60]))
    ]
    out: list[bytes | None] = [*single, *words, *([None] * random.choice([0, 0, 3]))]
    random.shuffle(out)
    return [*out, None]


_WORDS = (
    "session",
    "trace_id",
    "tags",
    "plan",
    "effort",
    "budget",
    "provider",
    "Order",
    "is-cached",
    "x_request",
    "é",
)
_FOREIGN = (
    "guided_json", "schema", "json_schema", "response_schema", "format", "text_format", "structured_output",
    "extra_body", "nvext", "sampling_params", "parameters", "options", "json", "grammar", *_WORDS,
)  # fmt: skip


def foreign_fields(random: Random) -> tuple[str, dict[str, Any], bool]:
    """A class of `requests.CLASSES`; a request of that class with unknown fields and no other constraint; and whether
    these fields hold a constraint."""
    from tests.languages.json_schema.random_schemas import random_schema

    names = random.sample(["a", "b", "c d", "é", "properties", "type"], random.randint(1, 3))
    schema = {
        "type": random.choice(["object", ["object", "null"]]),
        "properties": {name: random_schema(random, random.choice([0, 1])) for name in names},
        "additionalProperties": random.choice([True, False]),
    }
    constraint = random.choice([schema, schema, json.dumps(schema), 'root ::= "a"', {"$schema": "x", **schema}])

    def plain(depth: int) -> Any:
        if depth and random.random() < 0.6:
            return {random.choice(_WORDS): plain(depth - 1) for _ in range(random.randint(0, 3))}
        value = random.choice([None, True, 0, 1.5, "text", "a: b", "{", "object", ["a"], [1, {"type": "text"}], {}])
        return [value] if random.random() < 0.1 else value

    fields = {random.choice(_WORDS): plain(3) for _ in range(random.randint(0, 3))}
    is_constraint = random.random() < 0.7
    if is_constraint:
        for _ in range(random.choice([0, 0, 1, 2])):
            holder = {random.choice(_WORDS): constraint}
            constraint = random.choice([holder, [holder]])
        fields[random.choice(_FOREIGN)] = constraint
    kind = random.choice(["chat", "batch", "completion", "response", "message", "tokens"])
    if kind == "tokens" and not isinstance(fields.get("sampling_params", {}), dict):  # this API reads an object there
        fields["sampling_params"] = {random.choice(_WORDS): fields["sampling_params"]}
    messages = {"messages": [{"role": "user", "content": "?"}]}
    bodies: dict[str, dict[str, Any]] = {
        "chat": messages, "batch": {"messages": [messages["messages"]]}, "completion": {"prompt": "?"},
        "response": {"input": "?"}, "message": {**messages, "max_tokens": 8},
        "tokens": {"token_ids": [1], "sampling_params": {"max_tokens": 8}},
    }  # fmt: skip
    return kind, {"model": "m", **bodies[kind], **fields}, is_constraint


def body(random: Random) -> tuple[str, Any]:
    """A class of `requests.CLASSES`, and a request of that class."""
    from tests.languages.json_schema.random_schemas import random_schema

    schema = random_schema(random, random.choice([1, 2]))
    strict = random.choice([True, False, None])
    function = {"name": "f", "parameters": schema, "strict": strict}
    tool = {"type": "function", "function": function}
    choice = random.choice(["auto", "required", "none", {"type": "function", "function": {"name": "f"}}])
    named = {"type": "json_schema", "name": "n", "schema": schema}
    free: list[dict[str, Any]] = [
        {"structured_outputs": {"json": schema}},
        {"structured_outputs": {"regex": regex(random)}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"structured_outputs": {"grammar": grammar(random)}},
        {"structured_outputs": {"structural_tag": json.dumps(structural_tag(random))}},
    ]
    formats: list[dict[str, Any]] = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
        {"response_format": {"type": "json_object"}},
        {"response_format": structural_tag(random)},
    ]
    messages = {"messages": [{"role": "user", "content": "?"}]}
    kinds: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
        "chat": (messages, [*free, *formats, {"tools": [tool], "tool_choice": choice}, {"tools": [tool], "response_format": {"type": "json_object"}}]),
        "completion": ({"prompt": random.choice(["?", ["?", "!"], [1, 2]])}, [*free, *formats]),
        "response": (
            {"input": random.choice(["?", messages["messages"]])},
            [*free, {"text": {"format": named}}, {"text": {"format": {"type": "json_object"}}}, {"tools": [{"type": "function", **function}], "tool_choice": choice}],
        ),
        "message": (
            {**messages, "max_tokens": 8},
            [
                {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
                {"tools": [{"name": "f", "input_schema": schema, "strict": strict}], "tool_choice": {"type": random.choice(["auto", "any", "none"])}},
                {"tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "tool", "name": "f"}},
            ],
        ),
    }  # fmt: skip
    kind = random.choice(["chat", *kinds])
    subject, parts = kinds[kind]
    part = random.choice(parts)
    if random.random() < 0.8:
        key = random.choice(list(part))
        part = {**part, key: spoilt(random, part[key], BODY_WORDS)}
    if random.random() < 0.3:
        part = {**part, random.choice(BODY_WORDS): random.choice(ODD)}
    if random.random() < 0.1:
        subject = {key: spoilt(random, value, BODY_WORDS) for key, value in subject.items()}
    return kind, {"model": "m", **subject, **part}
