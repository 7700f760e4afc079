"""A tool with random parameters, as a server has it: the mask, a call under it, and what vLLM's parser reads of it."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from dotllm import Index, Vocabulary
from dotllm.errors import SpecError
from tests.languages.json_schema.random_schemas import random_schema
from tests.vllm_plugin.frontend.tool_calls import test_tool_parsers as parsers


@cache
def _tokenizer() -> tuple[Any, Vocabulary]:
    from dotllm.demo import model

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "marks").mkdir()
        made = parsers.marked_tokenizer(model.make(Path(folder) / "model"), Path(folder) / "marks")
    return made, Vocabulary.from_tokenizer(made)


def parameters(random: Random) -> dict[str, Any]:
    """An object's schema, most of whose properties are as random as they can be."""
    names = random.sample(["a", "b", "c d", "é", "arguments"], random.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: random_schema(random, random.choice([0, 1, 2])) for name in names},
        "required": [name for name in names if random.random() < 0.7],
        "additionalProperties": random.choice([False, False, random_schema(random, 1)]),
    }


def call(random: Random, schema: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """A parser's name, a text under the mask, and the arguments in it: read at once, and in a stream.

    None: nothing enforces the schema, or the walk did not end.
    """
    from vllm.exceptions import VLLMValidationError

    name = random.choice(parsers.PARSERS)
    tokenizer, vocabulary = _tokenizer()
    try:
        parser, request = parsers.with_strict_tool(name, schema, tokenizer)
        tag = request.structured_outputs.structural_tag
        index = Index.from_structural_tag(tag, vocabulary, any_whitespace=random.random() < 0.2)
        tokens = _walk(index, random)
    except (SpecError, VLLMValidationError):
        return None
    if tokens is None:
        return None
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
    assert calls and len(calls) == 1 and calls[0].name == "f", f"{name}: {json.dumps(schema)}\nand {text!r}"
    streamed = calls[0].arguments
    if name != "llama3_json" and len(tokens) < 100:  # (what is lost there: docs/structural-tags.md)
        parser, request = parsers.with_strict_tool(name, schema, tokenizer)
        (streamed,) = parsers.stream(parser, request, tokens, tokenizer)
    return name, text, calls[0].arguments, streamed


def written_as_json(name: str, text: str) -> Any:
    """The arguments that stand in ``text``, if the parser's notation is JSON."""
    if name not in ("deepseek_v3", "deepseek_v31", "hermes", "kimi_k2", "llama3_json", "longcat", "plamo3"):
        return None
    found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    for field in ("arguments", "parameters"):
        if found.get("name") == "f" and field in found and len(found) == 2:
            return found[field]
    return found


def _walk(index: Index, random: Random) -> list[int] | None:
    guide, ends = index.guide(), {*index.vocabulary.eos_token_ids}
    tokens: list[int] = []
    while len(tokens) < 250:
        allowed = [token for token in guide.allowed_tokens() if token not in ends]
        if not allowed or (guide.can_finish and random.random() < 0.7):
            return tokens
        tokens.append(random.choice(allowed))
        assert guide.advance(tokens[-1])
    return None
