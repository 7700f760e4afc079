"""Preview: answers stay vLLM's; what dotllm would have refused is counted as ``dotllm check --requests`` counts it.

``PREVIEW_REQUESTS=1000`` for more of the requests of `benchmarks.preview_counts`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest

pytest.importorskip("vllm")

from benchmarks import preview_counts
from dotllm.cli import options, requests
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.extra import preview
from dotllm.vllm_plugin.extra.preview import FAILED, NOT_CHECKED, Copying, Preview
from tests.vllm_plugin.frontend.test_requests import CASES
from tests.vllm_plugin.played_server import NAME, PlayedServer

MIXED = [
    *((path, body) for path, body, *_ in CASES),
    *preview_counts.mixed(int(os.environ.get("PREVIEW_REQUESTS", "40")), seed=1),
]


def counted(one: Preview) -> Counter[tuple[str, str]]:
    return Counter({tuple(labels): int(value) for _, labels, value in one.metrics.snapshot()["counters"]})


class Process:
    """The command, in a thread of this process: another process needs many seconds to load vLLM."""

    def __init__(self) -> None:
        theirs, ours = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
        lines, out = os.fdopen(theirs[0], encoding="utf-8"), os.fdopen(ours[1], "w", encoding="utf-8")
        judge = requests.Judge({})
        run = partial(requests.run, lines, judge, "stdin", as_json=True, out=out)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def kill(self) -> None:
        raise AssertionError("it answers")


def test_counts_are_those_of_the_command(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preview, "_started", lambda _: Process())
    looker = Preview([])
    for number, (path, body) in enumerate(MIXED):
        looker.take(path, json.dumps(body, indent=1).encode())
        if number % 500 == 0:
            looker.finish()  # before too many are waiting
    looker.take("/v1/responses", b'{"model": "m", "input": ')
    looker.finish()
    judge = requests.Judge({})
    lines = [json.dumps({"path": path, "body": body}) for path, body in MIXED] + ["{"]
    expected = Counter((found.outcome, found.code) for found in requests.judged(lines, judge, "log"))
    assert counted(looker) == expected and len(expected) > 5
    refused = sum(count for (outcome, _), count in expected.items() if outcome == requests.REFUSED)
    assert sum("would be refused" in record.message for record in caplog.records) == refused


def test_a_process_that_ends_is_not_the_servers(caplog: pytest.LogCaptureFixture) -> None:
    looker = Preview([sys.executable, "-c", "pass"])
    for _ in range(5):
        looker.take("/v1/completions", b"{}")
    looker.finish()
    assert counted(looker) == {(FAILED, ""): 5}
    assert sum("was not checked" in record.message for record in caplog.records) == 5


def test_what_comes_too_fast_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MOST_BYTES", 10)
    looker = Preview([sys.executable, "-c", "pass"])
    looker.take("/v1/completions", b"x" * 11)
    assert counted(looker) == {(NOT_CHECKED, ""): 1}


def test_counts_are_told_while_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, goes_on = threading.Semaphore(0), threading.Semaphore(0)
    told: list[int] = []

    def checked(*_: Any) -> dict[str, Any]:
        taken.release()
        goes_on.acquire()
        return {"outcome": "enforced"}

    looker = Preview([])
    monkeypatch.setattr(looker, "_started", lambda: None)
    monkeypatch.setattr(looker, "_checked", checked)
    monkeypatch.setattr(looker.metrics, "publish", lambda: told.append(sum(counted(looker).values())))
    for _ in range(3):
        looker.take("/v1/completions", b"{}")
    for _ in range(3):
        assert taken.acquire(timeout=60)
        goes_on.release()
    looker.finish()
    assert told == [1, 2, 3]


def test_answers_are_vllms(played: PlayedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests, with a preview and on plain vLLM. The preview receives each body once."""

    class Told:
        def __init__(self) -> None:
            self.bodies: list[tuple[str, bytes]] = []

        def take(self, path: str, body: bytes) -> None:
            self.bodies.append((path, body))

    def answers(app: Any) -> list[tuple[int, Any]]:
        server = PlayedServer(app, played.core, played._loop)
        found = []
        for path, body in MIXED:
            answer = server.post(path, {**body, "model": NAME, "stream": False} if isinstance(body, dict) else body)
            found.append((answer.status, without_names(answer.body)))
        return found

    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", "vllm")
    plain = answers(played.app)
    monkeypatch.delenv("DOTLLM_DEFAULT_BACKEND")
    monkeypatch.setenv("DOTLLM_PREVIEW", "on")
    assert not settings.is_ours("auto")
    told: Any = Told()
    assert answers(Copying(played.app, told)) == plain
    looked_at = [path for path, _ in MIXED if path in preview.PATHS]
    assert [path for path, _ in told.bodies] == looked_at
    assert {status for status, _ in plain} >= {200, 400}


def without_names(value: Any) -> Any:
    """An answer without the values that differ each time."""
    if isinstance(value, dict):
        return {
            name: without_names(part)
            for name, part in value.items()
            if name not in ("id", "call_id", "created", "created_at", "completed_at", "request_id", "item_id")
        }
    return [without_names(part) for part in value] if isinstance(value, list) else value


def test_a_body_in_parts_is_one() -> None:
    taken: list[bytes] = []

    class Told:
        def take(self, path: str, body: bytes) -> None:
            taken.append(body)

    messages = [{"type": "http.request", "body": part, "more_body": part != b"}"} for part in (b"{", b'"a": 1', b"}")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(3):
            await receive()

    async def receive() -> Any:
        return messages.pop(0)

    told: Any = Told()
    scope = {"type": "http", "method": "POST", "path": "/v1/completions"}
    asyncio.run(Copying(app, told)(scope, receive, None))
    assert taken == [b'{"a": 1}']


def test_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    assert options.export(["serve", "m", "--dotllm-preview", "--port", "1"], environment) == [
        "serve",
        "m",
        "--port",
        "1",
    ]
    assert environment == {"DOTLLM_PREVIEW": "on"}
    monkeypatch.setenv("DOTLLM_PREVIEW", "on")
    assert not settings.is_ours("auto")
    monkeypatch.setenv("DOTLLM_HOOKS", "enforce")
    with pytest.raises(ValueError, match="extra"):
        settings.value(settings.PREVIEW)


def test_the_servers_options_go_to_the_command() -> None:
    from types import SimpleNamespace

    structured = SimpleNamespace(disable_any_whitespace=True, disable_additional_properties=False)
    config = SimpleNamespace(structured_outputs_config=structured, model_config=SimpleNamespace(tokenizer="t"))
    assert preview.command(SimpleNamespace(vllm_config=config))[3:] == [
        "check", "--requests", "-", "--json", "--disable-any-whitespace", "--tokenizer", "t",
    ]  # fmt: skip
