"""Requests with a tight max_tokens, of all kinds, and how each ends: the load of `test_answers_that_end`.

    python -m tests.serve.ending_load MODEL_FOLDER 2000 [speculation|coalescence]    # figures of that many requests

Answers must end in time. For contrast, the first requests are sent again with ``dotllm_finish: false``.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import jsonschema

from dotllm.demo.server import Server

CLOSED = "dotllm: closed within max_tokens"
FLAGS = {
    "speculation": (
        *("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}'),
        *("--dotllm-finish-within-max-tokens", "on"),
    ),
    "coalescence": ("--dotllm-coalescence", "canonical", "--dotllm-finish-within-max-tokens", "on"),
}
AT_ONCE = 60
CONTRAST = 200  # requests at most
BEYOND = (0, 0, 1, 2, 3, 5, 8, 13, 21, 34, 64)  # tokens above the minimum

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "notes": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"enum": ["Oslo", "Rome", "San Francisco"]}},
            "required": ["street", "city"],
        },
    },
    "required": ["id", "notes", "address"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "children"],
        }
    },
    "$ref": "#/$defs/node",
}
TAGS = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
        "sizes": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    },
    "required": ["tags", "sizes"],
    "additionalProperties": False,
}
REGEX = r"(ab|cd){2,}( [a-z]+)*\."
CHOICES = ["yes", "no", "I would rather not say"]
GRAMMAR = 'start: item ("," item)* ";"\nitem: "(" item? ")" | /[0-9]+/'
WEATHER = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place", "days"]}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER, "strict": True}}  # fmt: skip


def _is(schema: Any) -> Callable[[str], bool]:
    validator = jsonschema.Draft202012Validator(schema)

    def valid(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text))
        except ValueError:
            return False

    return valid


def _balanced(text: str) -> bool:
    return bool(re.fullmatch(r"([0-9()]+,)*[0-9()]+;", text)) and text.count("(") == text.count(")")


class Kind(NamedTuple):
    """A kind of request."""

    body: dict[str, Any]
    valid: Callable[[str], bool]
    """whether the content is valid, or the arguments of each call"""
    calls: tuple[int, ...] = (0,)
    """the allowed numbers of calls"""


KINDS: dict[str, Kind] = {
    "order": Kind(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ORDER}}}, _is(ORDER)
    ),
    "tags": Kind({"structured_outputs": {"json": TAGS}}, _is(TAGS)),
    "tree": Kind({"structured_outputs": {"json": TREE}}, _is(TREE)),
    "any object": Kind({"response_format": {"type": "json_object"}}, _is({"type": "object"})),
    "regex": Kind({"structured_outputs": {"regex": REGEX}}, lambda text: bool(re.fullmatch(REGEX, text))),
    "choice": Kind({"structured_outputs": {"choice": CHOICES}}, CHOICES.__contains__),
    "grammar": Kind({"structured_outputs": {"grammar": GRAMMAR}}, _balanced),
    "required": Kind({"tools": [TOOL], "tool_choice": "required"}, _is(WEATHER), tuple(range(1, 50))),
    "named": Kind(
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}, _is(WEATHER), (1,)
    ),
    "auto": Kind({"tools": [TOOL], "tool_choice": "auto"}, _is(WEATHER), tuple(range(50))),
}


class Asked(NamedTuple):
    """A request and its kind."""

    kind: str
    body: dict[str, Any]


class Answer(NamedTuple):
    """The answer of one choice."""

    content: str
    calls: list[str]
    finish: str | None
    stop_reason: Any
    tokens: int


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """The lines of a stream. (httpx's own lines also end at U+2028.)"""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


async def _post(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Answer]:
    """The answers, from a stream if the body asks for one."""
    if not body.get("stream"):
        response = await client.post("/v1/chat/completions", json=body)
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.json()['error']['message']}")
        said = response.json()
        return [
            Answer(
                one["message"].get("content") or "",
                [call["function"]["arguments"] for call in one["message"].get("tool_calls") or ()],
                one["finish_reason"],
                one["stop_reason"],
                said["usage"]["completion_tokens"],
            )
            for one in said["choices"]
        ]
    content: dict[int, str] = {}
    calls: dict[int, dict[int, str]] = {}
    ends: dict[int, tuple[str, Any]] = {}
    tokens = 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {(await response.aread()).decode()}")
        async for line in _lines(response):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            for one in event["choices"]:
                number, delta = one["index"], one["delta"]
                content[number] = content.get(number, "") + (delta.get("content") or "")
                for call in delta.get("tool_calls") or ():
                    own = calls.setdefault(number, {})
                    own[call["index"]] = own.get(call["index"], "") + (call["function"].get("arguments") or "")
                if one["finish_reason"] is not None:
                    ends[number] = (one["finish_reason"], one.get("stop_reason"))
    return [
        Answer(content[n], list(calls.get(n, {}).values()), *ends.get(n, (None, None)), tokens) for n in sorted(content)
    ]


def base(kind: str, thinks: bool) -> dict[str, Any]:
    """A request without max_tokens."""
    return {
        "model": "random",
        "messages": [{"role": "user", "content": "Go on, and on, and on."}],
        "chat_template_kwargs": {"enable_thinking": thinks},
        **KINDS[kind].body,
    }


async def least(client: httpx.AsyncClient) -> dict[tuple[str, bool], int]:
    """The fewest tokens of an answer, by kind and by whether it reasons first: the number in a refusal."""
    found = {}
    for kind in KINDS:
        for thinks in (False, True):
            body = {**base(kind, thinks), "max_tokens": 1}
            try:
                await _post(client, body)
            except RuntimeError as error:
                said = re.search(r"400: .*takes (\d+) tokens, and max_tokens .* leave 1", str(error))
                assert said, (kind, error)
                found[kind, thinks] = int(said[1])
            else:
                found[kind, thinks] = 1
    return found


def requests(count: int, fewest: dict[tuple[str, bool], int], seed: int) -> list[Asked]:
    """``count`` requests, drawn at random."""
    draw = random.Random(seed)
    asked = []
    for number in range(count):
        kind, thinks = draw.choice(list(fewest))
        body = base(kind, thinks)
        body["max_tokens"] = fewest[kind, thinks] + draw.choice(BEYOND)
        body["temperature"] = draw.choice([0.0, 0.7, 1.0, 1.0, 1.5])
        body["seed"] = number if draw.random() < 0.3 else None
        body["n"] = 3 if draw.random() < 0.1 and body["temperature"] else 1
        if draw.random() < 0.2:
            body["top_k"] = 20
        if draw.random() < 0.5:
            body.update(stream=True, stream_options={"include_usage": True})
        if thinks and draw.random() < 0.5:
            body["thinking_token_budget"] = draw.choice([0, 3, 12])
        more = draw.choice([0, 0, 4, 20]) if thinks else 0
        body["vllm_xargs"] = {"dotllm_answer_tokens": more} if more else {}
        asked.append(Asked(kind, body))
    return asked


class Figures(NamedTuple):
    """The figures of all answers."""

    answers: int
    finished: Counter[str]
    invalid: list[tuple[Asked, Answer]]
    failed: list[tuple[Asked, str]]
    closed: int


async def send(client: httpx.AsyncClient, asked: Sequence[Asked], *, finish: bool) -> Figures:
    """Send all requests, `AT_ONCE` at a time."""
    figures = Figures(0, Counter(), [], [], 0)
    answers = closed = 0
    places = asyncio.Semaphore(AT_ONCE)

    async def one(request: Asked) -> None:
        nonlocal answers, closed
        body = request.body
        if not finish:
            body = {**body, "vllm_xargs": {"dotllm_finish": False}}
        async with places:
            try:
                got = await _post(client, body)
            except (RuntimeError, httpx.HTTPError) as error:
                figures.failed.append((request, f"{type(error).__name__}: {error}"))
                return
        kind = KINDS[request.kind]
        for answer in got:
            answers += 1
            closed += answer.stop_reason == CLOSED
            figures.finished[str(answer.finish)] += 1
            valid = len(answer.calls) in kind.calls and all(map(kind.valid, answer.calls))
            if not answer.calls and request.kind != "auto":
                valid = valid and kind.valid(answer.content)
            if not valid:
                figures.invalid.append((request, answer))

    await asyncio.gather(*map(one, asked))
    return figures._replace(answers=answers, closed=closed)


async def measure(url: str, count: int, seed: int = 0) -> tuple[Figures, Figures]:
    """The figures of ``count`` requests that must end in time, and of some without that, for contrast."""
    limits = httpx.Limits(max_connections=2 * AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=600.0, limits=limits) as client:
        asked = requests(count, await least(client), seed)
        return await send(client, asked, finish=True), await send(client, asked[:CONTRAST], finish=False)


def line(name: str, figures: Figures) -> str:
    """The figures as a line of a report."""
    return (
        f"{name}: {figures.answers} answers, {dict(figures.finished)}, {len(figures.invalid)} invalid, "
        f"{len(figures.failed)} failed, {figures.closed} closed in time"
    )


def main() -> None:
    """Print the figures."""
    from tests.serve.conftest import API_FLAGS

    model, count, *modes = sys.argv[1:]
    for mode in modes or FLAGS:
        with TemporaryDirectory() as folder:
            with Server(Path(model), Path(folder) / "log", name="random", flags=(*API_FLAGS, *FLAGS[mode])) as server:
                server.wait()
                ended, cut = asyncio.run(measure(server.url, int(count)))
            print(line(f"{mode}, in time", ended), line(f"{mode}, without", cut), sep="\n", flush=True)
            for request, what in [*ended.invalid, *ended.failed][:10]:
                print("  ", request.kind, request.body, what)


if __name__ == "__main__":
    main()
