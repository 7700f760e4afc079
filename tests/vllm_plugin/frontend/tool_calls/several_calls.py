"""Several calls and text around them, written by a walk under the mask, and what vLLM's parser reads from them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import numpy as np

from dotllm import Index

Read = list[tuple[str, str]]
"""The names and arguments of calls."""

_AROUND = ["\n", " ", "{", "{y", '{"a": 1}', "}", ";", "; ", ",", "[", "<", "Sure. ", "\n\n"]
_MARKS = re.compile(r"<[^<>]+>|<[^<>=]+=")


class Asked(NamedTuple):
    """A request as it is on the server after vLLM's parser has read its tools."""

    new_parser: Callable[[], Any]
    request: Any
    names: tuple[str, ...]

    @property
    def tag(self) -> str | None:
        """The constraint, or None if the text is free."""
        found: str | None = getattr(self.request.structured_outputs, "structural_tag", None)
        return found


def text_of(tokens: list[int], tokenizer: Any) -> str:
    """What ``tokens`` spell, special tokens included. (transformers' own ``decode`` looks at the type of each token,
    which takes most of the time when a stream is decoded at every token.)"""
    text: str = tokenizer.backend_tokenizer.decode(tokens, skip_special_tokens=False)
    return text


def ask(
    name: str, tools: list[dict[str, Any]], choice: Any, tokenizer: Any, *, parallel: bool = True, level: str = "auto"
) -> Asked:
    """Have vLLM's parser ``name`` prepare a request with these tools. ``level``: the server's --tool-strict-level."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    request = ChatCompletionRequest(
        model="m", messages=[], tools=tools, tool_choice=choice, **({} if parallel else {"parallel_tool_calls": False})
    )
    parser_class = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True, tool_strict_level=level)
    request = parser_class(tokenizer, tools=request.tools).adjust_request(request)
    names = tuple(tool["function"]["name"] for tool in tools)
    return Asked(lambda: parser_class(tokenizer, tools=request.tools), request, names)


def written(asked: Asked, text: str) -> Read:
    """The calls in ``text`` according to the constraint, in order; their arguments are "" if they are not JSON."""
    tag = json.loads(asked.tag or "null")
    if tag["format"]["type"] == "json_schema":
        value = json.loads(text)
        if isinstance(asked.request.tool_choice, str):
            return [(call["name"], json.dumps(call["parameters"])) for call in value]
        return [(asked.request.tool_choice.function.name, text)]
    is_json = all(style == "json" for style in re.findall(r'"style": "(\w+)"', asked.tag or ""))
    found = [(at, name) for begin, name in begins(asked) for at in re.finditer(re.escape(begin), text)]
    return [(name, _value(text, at.end()) if is_json else "") for at, name in sorted(found, key=lambda f: f[0].start())]


def _value(text: str, behind: int) -> str:
    """The next JSON object; "" if it is incomplete."""
    with contextlib.suppress(ValueError):
        at = text.index("{", behind)
        _, end = json.JSONDecoder().raw_decode(text, at)
        return text[at:end]
    return ""


def begins(asked: Asked) -> list[tuple[str, str]]:
    """The texts that begin a call in the constraint, each with the name in it."""
    texts = {text for text in fixed_texts(asked) if any(name in text for name in asked.names)}
    return [(t, name) for t in texts for name in asked.names if re.search(rf"(?<![a-z0-9_]){name}(?![a-z0-9_])", t)]


def fixed_texts(asked: Asked) -> Iterator[str]:
    """All begins, ends, triggers and separators of the constraint."""
    todo = [json.loads(asked.tag or "null")]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            parts = [one.get(field) for field in ("begin", "end", "value", "separator", "triggers")]
            for texts in parts:
                yield from [text for text in (texts if isinstance(texts, list) else [texts]) if isinstance(text, str)]
            todo.extend(part for field, part in one.items() if field != "json_schema")


def walk(asked: Asked, index: Index, random: Random, tokenizer: Any, most: int = 500) -> list[int] | None:
    """Tokens of an answer with calls and text, preferring beginnings and ends of calls. None if it did not end."""
    wanted, ends = random.randint(1, 4), {*index.vocabulary.eos_token_ids}
    texts = [*fixed_texts(asked), *_AROUND]
    likely = [*texts, *(mark for text in texts for mark in _MARKS.findall(text)), *(b for b, _ in begins(asked) * 3)]
    guide, tokens = index.guide(), list[int]()
    while len(tokens) < most:
        if guide.can_finish:
            draw = random.random()
            if draw < 0.03:
                return tokens
            if draw < 0.5 and len(written(asked, text_of(tokens, tokenizer))) >= wanted:
                return tokens
        way = tokenizer.encode(random.choice(likely), add_special_tokens=False) if random.random() < 0.25 else []
        if not way or guide.accepts(way) < len(way):
            allowed = [token for token in guide.allowed_tokens() if token not in ends]
            if not allowed:
                return tokens
            way = [random.choice(allowed)]
        assert all(map(guide.advance, way))
        tokens += way
    return None


def walk_within(index: Index, random: Random, more: int) -> list[int]:
    """Tokens of an answer, drawn uniformly from the masks under a limit of the minimum plus ``more``."""
    guide, tokens = index.guide(), list[int]()
    for left in range(guide.tokens_to_finish + more, 0, -1):
        mask = guide.mask_within(left)
        bits = index.masks[guide.mask_row] if mask is None else mask
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        token = int(random.choice(allowed))
        assert guide.advance(token)
        if token in index.vocabulary.eos_token_ids:
            break
        tokens.append(token)
    assert guide.is_finished or guide.can_finish
    return tokens


def read(asked: Asked, tokens: list[int], tokenizer: Any) -> Read:
    """The calls of an answer that is read as a whole."""
    text = text_of(tokens, tokenizer)
    _, _, calls = asked.new_parser().parse(text, asked.request, enable_auto_tools=True, model_output_token_ids=tokens)
    return [(call.name, call.arguments) for call in calls or ()]


def stream(asked: Asked, tokens: list[int], tokenizer: Any, sizes: Callable[[], int]) -> Read:
    """The calls of an answer that arrives in chunks of ``sizes`` tokens."""
    return stream_with_text(asked, tokens, tokenizer, sizes)[1]


def stream_with_text(
    asked: Asked, tokens: list[int], tokenizer: Any, sizes: Callable[[], int] = lambda: 1
) -> tuple[str, Read]:
    """The text, and the calls as `stream` returns them."""
    parser = asked.new_parser()
    calls: dict[int, list[str]] = {}
    content, before, at = "", "", 0
    while at < len(tokens):
        chunk = tokens[at : at + sizes()]
        at += len(chunk)
        text = text_of(tokens[:at], tokenizer)
        if text.endswith("\ufffd") and at < len(tokens):
            text = before
        delta = parser.parse_delta(text[len(before) :], chunk, asked.request, [], finished=at >= len(tokens))
        before = text
        content += (delta.content or "") if delta else ""
        told = (delta.tool_calls or ()) if delta else ()
        assert len({call.index for call in told}) == len(told), "clients read one entry of a call in each event"
        for call in told:
            found = calls.setdefault(call.index, ["", ""])
            found[0] += call.function.name or ""
            found[1] += call.function.arguments or ""
    return content, [(name, arguments) for _, (name, arguments) in sorted(calls.items())]


def every_reading(asked: Asked, tokens: list[int], tokenizer: Any, random: Random) -> dict[str, Read]:
    """As a whole, token by token, in chunks of various sizes, and in a stream of one chunk."""
    return {
        "at once": read(asked, tokens, tokenizer),
        "token by token": stream(asked, tokens, tokenizer, lambda: 1),
        "in chunks": stream(asked, tokens, tokenizer, lambda: random.randint(1, 6)),
        "in one chunk": stream(asked, tokens, tokenizer, lambda: len(tokens)),
    }
