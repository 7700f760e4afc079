"""Sends cases to an OpenAI-compatible server, a fixed number at a time, and judges the answers.

An *arm* is a way to ask a case. It makes the request's body and reads the calls from the answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import aiohttp

from dotllm.bench.quality import faults
from dotllm.bench.quality.cases import Call, Case, undescribed

Body = dict[str, Any]
THINK = "First think step by step, in a few sentences, about what the reply must hold. Do not write JSON yet."
NOW_REPLY = "Now write the reply."


@dataclass(frozen=True)
class Arm:
    """One way to ask."""

    constraint: Literal["", "json_schema", "forced", "auto"] = ""
    """forced, auto: the functions are the request's tools, with such a ``tool_choice``."""
    strict: bool | None = None
    """The field ``strict`` of the tools; None leaves it out."""
    with_schema: bool = False
    """Whether the prompt has the answer's JSON Schema."""
    described: bool = True
    """Whether the prompt has the descriptions of the functions and of their parameters."""
    sourced: bool = False
    """Whether values are taken from what the user says (``dotllm_source``)."""
    thinks: bool = False
    """Whether the model first writes freely, in a request of its own; the second request shows what it wrote."""

    def fits(self, case: Case) -> bool:
        """Whether the arm can answer the case correctly: a forced call cannot if the right answer has no call."""
        return case.wants_call or self.constraint in ("", "auto")

    def messages(self, case: Case) -> list[Body]:
        """The conversation, without thoughts of the model. A case's own system message follows the arm's."""
        told = [message["content"] for message in case.question if message["role"] == "system"]
        shown = case if self.described else undescribed(case)
        system = "\n".join([shown.system(with_schema=self.with_schema), *told])
        return [{"role": "system", "content": system}, *(m for m in case.question if m["role"] != "system")]

    def constrain(self, case: Case) -> Body:
        """The fields of the request that say what the answer must be."""
        said = "\n".join(str(message["content"]) for message in case.question if message["role"] == "user")
        return self._form(case) | ({"vllm_xargs": {"dotllm_source": said}} if self.sourced else {})

    def _form(self, case: Case) -> Body:
        if self.constraint == "json_schema":
            named = {"name": "answer", "schema": case.schema()}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        if not self.constraint:
            return {}
        choice: Any = "auto"
        if self.constraint == "forced":
            only = case.shape == "arguments"
            choice = {"type": "function", "function": {"name": case.functions[0].name}} if only else "required"
        return {"tools": [function.tool(strict=self.strict) for function in case.functions], "tool_choice": choice}

    def read(self, case: Case, message: Body) -> list[Call] | None:
        """The calls of an answer; None if it cannot be read. An answer without JSON has no calls, if the case allows
        that."""
        try:
            if self.constraint in ("forced", "auto"):
                made = message.get("tool_calls") or []
                if not made and case.wants_call:
                    return None
                return [Call(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]
            text = message.get("content") or ""
            document = json.loads(text) if self.constraint else first_json(text, case.shape)
            return case.calls(document)
        except ValueError:
            return None if case.wants_call else []


ARMS = {
    "free": Arm(),
    "prompted": Arm(with_schema=True),
    "json_schema": Arm("json_schema"),
    "prompted json_schema": Arm("json_schema", with_schema=True),
    "tools": Arm("forced"),
    "strict tools": Arm("forced", strict=True),
    "auto": Arm("auto"),
    "strict auto": Arm("auto", strict=True),
    "undescribed json_schema": Arm("json_schema", described=False),
    "sourced json_schema": Arm("json_schema", sourced=True),
    "sourced prompted json_schema": Arm("json_schema", with_schema=True, sourced=True),
    "sourced tools": Arm("forced", sourced=True),
    "sourced strict tools": Arm("forced", strict=True, sourced=True),
    "think": Arm("json_schema", thinks=True),
}


def first_json(text: str, shape: str) -> Any:
    """The first JSON value of the shape's kind in a free text, so that prose and fences around it do no harm.

    Raises:
        ValueError: there is no such value.
    """
    decoder = json.JSONDecoder()
    opening = "[" if shape == "calls" else "{"
    at = text.find(opening)
    while at >= 0:
        try:
            return decoder.raw_decode(text, at)[0]
        except ValueError:
            at = text.find(opening, at + 1)
    raise ValueError("no JSON")


def chosen(names: Sequence[str]) -> dict[str, Arm]:
    """The arms of these names.

    Raises:
        ValueError: a name is unknown.
    """
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise ValueError(f"no arm is called {unknown[0]!r}; there are: {', '.join(ARMS)}")
    return {name: ARMS[name] for name in names}


@dataclass
class Answer:
    """The result of a case in an arm."""

    case: str
    set: str
    arm: str
    parsed: bool = False
    valid: bool = False
    """Whether the answer is valid under the schema, by `jsonschema`."""
    right: bool = False
    fault: str = ""
    """The judge's class of the fault, if the answer was parsed; otherwise how the request failed."""
    kind: str = ""
    """The class of the fault by `faults`."""
    cut: bool = False
    """Whether ``max_tokens`` cut the answer off."""
    refused: bool = False
    """Whether the server answered 4xx."""
    tokens: int = 0
    seconds: float = 0.0
    text: str = ""
    taken: float | None = None
    """With ``dotllm_mass``: the share of the model's probability that masks took away, summed over the tokens."""

    def record(self) -> dict[str, Any]:
        """The answer as JSON."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


class Asker:
    """A server at ``url`` (without /v1). ``extra`` is merged into every body."""

    def __init__(self, url: str, model: str, *, key: str, max_tokens: int, extra: Mapping[str, Any]) -> None:
        self.url = url.rstrip("/") + "/v1/chat/completions"
        self.common = {"model": model, "temperature": 0, "max_tokens": max_tokens, **extra}
        self.headers = {"Authorization": f"Bearer {key}"}
        self.timeout = aiohttp.ClientTimeout(total=600)

    async def ask_all(
        self,
        cases: Sequence[Case],
        arms: Mapping[str, Arm],
        concurrency: int,
        done: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """The answers of every case in every arm that fits it. ``done`` is called after each answer."""
        pairs = [(case, name, arm) for name, arm in arms.items() for case in cases if arm.fits(case)]
        turns = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(headers=self.headers, timeout=self.timeout) as session:

            async def ask_in_turn(case: Case, name: str, arm: Arm) -> Answer:
                async with turns:
                    answer = await self.ask(session, case, name, arm)
                done()
                return answer

            return list(await asyncio.gather(*(ask_in_turn(*pair) for pair in pairs)))

    async def ask(self, session: aiohttp.ClientSession, case: Case, name: str, arm: Arm) -> Answer:
        """Ask one case in one arm. Errors of the server and the network are in the answer, never raised."""
        answer = Answer(case.name, case.set, name)
        started = time.perf_counter()
        messages = arm.messages(case)
        try:
            if arm.thinks:
                thought = await self._send(
                    session, answer, {"messages": [*messages, {"role": "user", "content": THINK}]}
                )
                if thought is None:
                    return answer
                said = {"role": "assistant", "content": thought["content"] or ""}
                messages = [*messages, said, {"role": "user", "content": NOW_REPLY}]
                answer.cut = False  # the thoughts may be cut
            message = await self._send(session, answer, {"messages": messages, **arm.constrain(case)})
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            answer.fault = f"{type(error).__name__}: {error}"
            return answer
        finally:
            answer.seconds = time.perf_counter() - started
        if message is None:
            return answer
        calls = arm.read(case, message)
        if calls is not None:
            answer.parsed = True
            answer.valid = case.valid(calls)
            answer.fault = case.judge(calls)
            answer.right = not answer.fault
            answer.kind = answer.fault and faults.class_of(case, calls)
        elif answer.cut:
            answer.kind = faults.class_of_cut(answer.text)
        return answer

    async def _send(self, session: aiohttp.ClientSession, answer: Answer, body: Body) -> Body | None:
        body = self.common | body
        if "vllm_xargs" in self.common:
            body["vllm_xargs"] = self.common["vllm_xargs"] | body["vllm_xargs"]
        async with session.post(self.url, json=body) as response:
            if response.status != 200:
                answer.refused = 400 <= response.status < 500
                answer.fault = f"HTTP {response.status}: {(await response.text())[:300]}"
                return None
            replied = await response.json()
        choice = replied["choices"][0]
        answer.tokens += replied["usage"]["completion_tokens"]
        answer.cut = choice["finish_reason"] == "length"
        message: Body = choice["message"]
        if (said := choice.get("dotllm")) is not None:
            answer.taken = round(sum(1 - math.exp(mass) for mass in said["mass"] if mass is not None), 3)
        made = message.get("tool_calls") or []
        answer.text = message.get("content") or "\n".join(
            f"{c['function']['name']}({c['function']['arguments']})" for c in made
        )
        return message
