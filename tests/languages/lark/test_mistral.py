"""The grammars that Mistral's tokenizer package writes for tool calls and reasoning: all compile to what they mean."""

from __future__ import annotations

import itertools
import json

import pytest

from dotllm.grammar.transform import prepare
from dotllm.languages.lark.build import lark_to_grammar
from tests.grammar.reference import Recogniser

factory = pytest.importorskip("mistral_common.guidance.grammar_factory")
jinja2 = pytest.importorskip("jinja2")

CALL = '(<[9]> SAFE_WS? "get_weather" <[32]> SAFE_WS? %json {"type": "object"})+'
SCHEMA = json.dumps({"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]})


def rendered(template: str, mode: str, schema: str | None = None, json_only: bool = False) -> str:
    text = (factory.JINJA_DIR / f"{template}.lark.jinja").read_text(encoding="utf-8")
    return str(
        jinja2.Environment()
        .from_string(text)
        .render(
            mode=mode,
            json_schema_str=schema,
            json_only=json_only,
            think_with_json=True,
            fcall=CALL,
            begin_think_token="<[34]>",
            end_think_token="<[35]>",
        )
    )


def reads(grammar: str, *parts: str | int) -> bool:
    """Whether the grammar accepts this text; ints are ids of tokens."""
    recogniser = Recogniser(prepare(lark_to_grammar(grammar)))
    for part in parts:
        steps = [recogniser.feed_token(part)] if isinstance(part, int) else map(recogniser.feed, part.encode())
        if not all(steps):
            return False
    return recogniser.can_finish


@pytest.mark.parametrize("template", ["base_grammar", "think_grammar", "plain_text_think_grammar"])
def test_every_variant_compiles(template: str) -> None:
    for mode, schema, json_only in itertools.product(("auto", "required", "none"), (None, SCHEMA), (False, True)):
        prepare(lark_to_grammar(rendered(template, mode, schema, json_only)))


def test_tool_calls() -> None:
    auto, required = rendered("base_grammar", "auto"), rendered("base_grammar", "required")
    assert reads(auto, "hello")
    assert reads(auto, "hello", 9, "get_weather", 32, ' {"c": 1}', 9, "get_weather", 32, "{}")
    assert not reads(auto, "hello", 9, "get_weather", 32)
    assert not reads(required, "hello")
    assert reads(required, 9, "get_weather", 32, "{}")
    assert not reads(required, 9, "other", 32, "{}")


def test_thinking_in_special_tokens() -> None:
    grammar = rendered("think_grammar", "none", SCHEMA, json_only=True)
    assert reads(grammar, 34, "hm\n", 35, '\n{"c": 1}')
    assert reads(grammar, '{"c": 1}')
    assert not reads(grammar, 34, "hm", '{"c": 1}')


def test_thinking_in_plain_text() -> None:
    grammar = rendered("plain_text_think_grammar", "none")
    assert reads(grammar, "<think>a <b>\n</think>the answer")
    assert not reads(grammar, "<think>a")
    assert not reads(grammar, "the answer")
