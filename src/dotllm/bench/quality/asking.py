"""Sends cases to an OpenAI-compatible server, a fixed number at a time, and judges the answers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp

from dotllm.bench.quality import faults
from dotllm.bench.quality.arms import NOW_REPLY, THINK, Arm, Body
from dotllm.bench.quality.cases import Case


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
    """The judge's class of a wrong answer that was parsed; else how the request failed."""
    kind: str = ""
    """The fault of the answer, as a class of `faults`."""
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

    def __init__(
        self, url: str, model: str, *, key: str, max_tokens: int, extra: Mapping[str, Any], timeout: float = 600
    ) -> None:
        self.url = url.rstrip("/") + "/v1/chat/completions"
        self.common = {"model": model, "temperature": 0, "max_tokens": max_tokens, **extra}
        self.headers = {"Authorization": f"Bearer {key}"}
        self.timeout = aiohttp.ClientTimeout(total=timeout)

    async def ask_all(
        self,
        cases: Sequence[Case],
        arms: Mapping[str, Arm],
        concurrency: int,
        done: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """The answers of every case in every arm that fits it. ``done`` is called after each."""
        pairs = [(case, name, arm) for name, arm in arms.items() for case in cases if arm.fits(case)]
        turns = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(headers=self.headers, timeout=self.timeout) as session:

            async def one(case: Case, name: str, arm: Arm) -> Answer:
                async with turns:
                    answer = await self.ask(session, case, name, arm)
                done()
                return answer

            return list(await asyncio.gather(*(one(*pair) for pair in pairs)))

    async def ask(self, session: aiohttp.ClientSession, case: Case, name: str, arm: Arm) -> Answer:
        """One case in one arm. Faults of server and network are in the answer, never raised."""
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
