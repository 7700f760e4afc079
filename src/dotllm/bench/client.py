"""One streaming request to an OpenAI-compatible server, with the time of every chunk.

It uses aiohttp and plain JSON rather than the ``openai`` client, whose work per chunk would distort the measurement at
256 concurrent streams.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from dotllm.bench.workloads import Constraint

PROMPT = "Answer in the required format. Make up whatever you do not know."


@dataclass(frozen=True)
class BenchRequest:
    """What to ask. ``tokens`` makes an unconstrained twin: exactly that many tokens, whatever they say.

    vLLM's ``ignore_eos`` alone does that. ``min_tokens`` would make vLLM ban the end tokens in every step, and the twin
    must not pay for that.
    """

    constraint: Constraint | None = None
    prompt: str = PROMPT
    max_tokens: int = 512
    tokens: int | None = None
    temperature: float = 1.0

    def body(self, model: str, endpoint: str) -> dict[str, Any]:
        """The JSON body for ``chat`` or ``completions``."""
        content: dict[str, Any] = (
            {"messages": [{"role": "user", "content": self.prompt}]} if endpoint == "chat" else {"prompt": self.prompt}
        )
        limits: dict[str, Any] = {"max_tokens": self.tokens or self.max_tokens}
        if self.tokens is not None:
            limits["ignore_eos"] = True
        constraint = self.constraint.body() if self.constraint else {}
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": model, "temperature": self.temperature, **content, **limits, **constraint, **stream}


@dataclass
class Sample:
    """The result of a request. Times are seconds of `time.perf_counter`; ``chunks`` has the arrival times of text."""

    request: BenchRequest
    start: float
    end: float = 0.0
    chunks: list[float] = field(default_factory=list)
    tokens: int = 0
    text: str = ""
    finish_reason: str | None = None
    error: str | None = None

    @property
    def first(self) -> float | None:
        """Seconds to the first token."""
        return self.chunks[0] - self.start if self.chunks else None

    @property
    def decode_seconds(self) -> float:
        """Seconds from the first token to the last."""
        return self.chunks[-1] - self.chunks[0] if self.chunks else 0.0


class BenchTarget(Protocol):
    """Whatever answers requests: a server, or an engine in this process."""

    async def send(self, request: BenchRequest) -> Sample:
        """Send and wait for the end; errors are in ``Sample.error``, never raised."""

    async def close(self) -> None:
        """Release all resources."""


class HttpTarget:
    """A server at ``url`` (without /v1). ``endpoint`` is chat or completions."""

    def __init__(
        self, url: str, model: str, *, endpoint: str = "chat", key: str = "none", timeout: float = 600
    ) -> None:
        self.model = model
        self.endpoint = endpoint
        path = "/v1/chat/completions" if endpoint == "chat" else "/v1/completions"
        self.url = url.rstrip("/") + path
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=timeout),
            headers={"Authorization": f"Bearer {key}"},
            read_bufsize=2**20,
        )

    async def send(self, request: BenchRequest) -> Sample:
        """See `BenchTarget`."""
        body = request.body(self.model, self.endpoint)
        sample = Sample(request, time.perf_counter())
        try:
            async with self.session.post(self.url, json=body) as response:
                if response.status != 200:
                    sample.error = f"HTTP {response.status}: {(await response.text())[:300]}"
                else:
                    await self._read(response, sample)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            sample.error = f"{type(error).__name__}: {error}"
        sample.end = time.perf_counter()
        if sample.error is None and not sample.chunks:
            sample.error = "no text"
        return sample

    async def _read(self, response: aiohttp.ClientResponse, sample: Sample) -> None:
        parts: list[str] = []
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            event = json.loads(line[6:])
            if "error" in event:
                sample.error = str(event["error"])[:300]
                return
            if event.get("usage"):
                sample.tokens = event["usage"]["completion_tokens"]
            for choice in event["choices"]:
                sample.chunks.append(now)
                piece = choice["delta"].get("content") if self.endpoint == "chat" else choice["text"]
                if piece:
                    parts.append(piece)
                if choice.get("finish_reason"):
                    sample.finish_reason = choice["finish_reason"]
        sample.text = "".join(parts)

    async def close(self) -> None:
        """See `BenchTarget`."""
        await self.session.close()


async def first_model(url: str, key: str = "none") -> str:
    """The name of the model that a server serves (the first of ``/v1/models``).

    Raises:
        ValueError: the server cannot be reached, refuses the key, or names no model; the message says which.
    """
    address = url.rstrip("/") + "/v1/models"
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with aiohttp.ClientSession(headers=headers) as session, session.get(address) as response:
            status, text = response.status, await response.text()
    except aiohttp.InvalidURL:
        raise ValueError(f"{address}: not an address (example: http://localhost:8000)") from None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        raise ValueError(f"{address}: {error or type(error).__name__}") from None
    if status != 200:
        raise ValueError(f"{address}: HTTP {status}: {text[:300]}")
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"{address} names no model: {text[:300]}") from None


async def closed_loop(
    target: BenchTarget, requests: Sequence[BenchRequest], concurrency: int, done: Callable[[], None] = lambda: None
) -> tuple[list[Sample], float]:
    """Send ``requests``, with ``concurrency`` of them in flight: when one ends, the next is sent.

    Returns their samples, in order, and the wall time. ``done`` is called after each request.
    """
    samples: list[Sample | None] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def worker() -> None:
        for number, request in waiting:
            samples[number] = await target.send(request)
            done()

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(min(concurrency, len(requests)))))
    wall = time.perf_counter() - start
    return [sample for sample in samples if sample is not None], wall
