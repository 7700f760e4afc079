"""Requests without a client library: status, body and time, unprocessed."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol


class HasUrl(Protocol):
    url: str


class Answer(NamedTuple):
    status: int
    body: Any
    seconds: float

    @property
    def text(self) -> str:
        return str(self.body["choices"][0]["text"])

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


def complete(server: HasUrl, model: str, timeout: float = 300.0, **fields: Any) -> Answer:
    """One request to /v1/completions (or to ``path``); by default for 8 tokens at temperature 1."""
    path = fields.pop("path", "/v1/completions")
    body = {"model": model, "max_tokens": 8, "temperature": 1.0, **fields}
    if path == "/v1/completions":
        body.setdefault("prompt", "hello")
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return Answer(response.status, json.loads(response.read()), time.perf_counter() - start)
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.loads(error.read()), time.perf_counter() - start)


def first_token(server: HasUrl, model: str, timeout: float = 300.0, **fields: Any) -> float:
    """Seconds until the first chunk of a streamed completion, which is then read to its end."""
    body = {"model": model, "max_tokens": 8, "temperature": 1.0, "stream": True, "prompt": "hello", **fields}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    start = time.perf_counter()
    first = 0.0
    with urllib.request.urlopen(request, timeout=timeout) as response:
        for line in response:
            if line.startswith(b"data: {") and not first:
                first = time.perf_counter() - start
    return first


def together(number: int, call: Any) -> list[Any]:
    """``call(i)`` for i < number, all at the same time."""
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(call, range(number)))


def metrics(server: HasUrl) -> dict[str, float]:
    """The values of /metrics as {name{labels}: value}."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}


def total(found: dict[str, float], name: str, **labels: str) -> float:
    """The sum of all values of ``name`` with these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(value for key, value in found.items() if key.split("{")[0] == name and all(one in key for one in wanted))


def until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for ``condition``. The time limit is only for failures, so it is far beyond what a busy machine needs."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.1)
