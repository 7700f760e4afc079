"""Tools with random parameters and with none, as on a server: the mask, an answer under it with several calls and text
around them, and what vLLM's parser reads from it."""

from __future__ import annotations

import contextlib
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from dotllm import Index, Vocabulary
from dotllm.errors import SpecError
from tests.languages.json_schema.random_schemas import random_schema
from tests.vllm_plugin.frontend.tool_calls import several_calls
from tests.vllm_plugin.frontend.tool_calls import test_tool_parsers as parsers

NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
ONE: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["x"],
    "additionalProperties": False,
}


@cache
def _tokenizer() -> tuple[Any, Vocabulary]:
    from dotllm.demo import model

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "marks").mkdir()
        made = parsers.marked_tokenizer(model.make(Path(folder) / "model"), Path(folder) / "marks")
    return made, Vocabulary.from_tokenizer(made)


def parameters(random: Random) -> dict[str, Any]:
    """An object's schema with random properties."""
    names = random.sample(["a", "b", "c d", "é", "arguments"], random.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: random_schema(random, random.choice([0, 1, 2])) for name in names},
        "required": [name for name in names if random.random() < 0.7],
        "additionalProperties": random.choice([False, False, random_schema(random, 1)]),
    }


class Call(NamedTuple):
    """A call in an answer, as vLLM's parser reads it."""

    parser: str
    schema: dict[str, Any]
    text: str
    written: str
    """its arguments in the text if they are JSON, else empty"""
    at_once: str
    streamed: dict[str, str]
    """its arguments, for each way to cut the stream"""


@cache
def _parsers() -> list[str]:
    """The vLLM parsers for which there is a constraint with this tokenizer."""
    from vllm.tool_parsers import ToolParserManager

    tokenizer, _ = _tokenizer()
    found = []
    for name in ToolParserManager.list_registered():
        with contextlib.suppress(
            Exception
        ):  # some parsers need another tokenizer or another package, or refuse strict tools
            if name != "openai" and several_calls.ask(name, [_tool("f", {})], "required", tokenizer).tag is not None:
                found.append(name)
    return found


def _tool(name: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    function = {"name": name, "strict": True} | ({} if parameters is None else {"parameters": parameters})
    return {"type": "function", "function": function}


def calls(random: Random, schema: dict[str, Any]) -> list[Call]:
    """All calls of an answer under the mask: several, with text around them, of tools with and without arguments.

    The list is empty if the schema is not enforced or the walk did not end.
    """
    from vllm.exceptions import VLLMValidationError

    tokenizer, vocabulary = _tokenizer()
    name, schemas = random.choice(_parsers()), {"f": schema, "now": NOTHING}
    if random.random() < 0.5:
        schemas["g_1"] = ONE
    tools = [_tool(tool, None if one is NOTHING and random.random() < 0.5 else one) for tool, one in schemas.items()]
    random.shuffle(tools)
    choice: Any = random.choice(
        ["auto", "auto", "required", "required", {"type": "function", "function": {"name": "f"}}]
    )
    try:
        asked = several_calls.ask(name, tools, choice, tokenizer, parallel=random.random() < 0.7)
        if asked.tag is None:
            return []
        index = Index.from_structural_tag(
            asked.tag,
            vocabulary,
            any_whitespace=random.random() < 0.2,
            property_order=random.choice(["any", "declared"]),
        )
        tokens = several_calls.walk(asked, index, random, tokenizer, 250)
    except (SpecError, VLLMValidationError):
        return []
    if tokens is None:
        return []
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    stated = several_calls.written(asked, text)
    readings = several_calls.every_reading(asked, tokens, tokenizer, random)
    for how, found in readings.items():
        names, expected = [tool for tool, _ in found], [tool for tool, _ in stated]
        assert names == expected, f"{name}, {how}: {json.dumps(tools)}\nand {text!r}\nread as {found}"
    at_once = readings.pop("at once")
    return [
        Call(name, schemas[tool], text, stated[i][1], arguments, {how: found[i][1] for how, found in readings.items()})
        for i, (tool, arguments) in enumerate(at_once)
    ]
