"""Two servers with one store: the second starts warm, and the death of the store affects no request."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cases import sample
from tests.serve import faults
from tests.serve.raw import complete, metrics, total, until
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

MODEL = "demo"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "kind": {"enum": ["one", "two"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}
# Compiling takes a while, as for large schemas, so the store's answer comes first and a test can rely on it.
COMPILE = 3.0
FAULTS = [{"needle": "maxLength", "do": "sleep", "seconds": COMPILE}]


def entries(url: str) -> int:
    if url.startswith("redis"):
        import redis

        try:
            return sum(1 for _ in redis.Redis.from_url(url).scan_iter())
        except redis.ConnectionError:
            return 0
    return sum(1 for path in Path(url.removeprefix("file://")).rglob("*") if path.is_file())


def logged(server: Server, level: str) -> dict[str, Any]:
    """The server's log record about the schema when it came from ``level``."""
    lines = (line.split("compile ", 1)[1] for line in server.log.read_text().splitlines() if "] compile {" in line)
    records = [json.loads(line) for line in lines]
    return next(one for one in records if one["level"] == level and one["kind"] == "json_schema")


def ask(server: Server, **schema: object) -> None:
    answer = complete(server, MODEL, max_tokens=64, structured_outputs={"json": {**SCHEMA, **schema}})
    assert answer.status == 200, answer.body


def two_servers(model: Path, directory: Path, url: str, stop_store: subprocess.Popen[bytes] | None) -> None:
    environment = {"DOTLLM_DISK_BYTES": "0", "DOTLLM_STORE_WRITE_INTERVAL": "0.5"}
    environment |= faults.environment(directory / "faults", FAULTS)
    with ExitStack() as stack:

        def start(name: str) -> Server:
            flags = ("--max-model-len", "512", "--dotllm-store", url)
            log = directory / f"{name}.log"
            server = Server(model, log, name=MODEL, flags=flags, environment=environment)
            return stack.enter_context(server)

        first, second = start("first"), start("second")
        first.wait()
        second.wait()

        def written_again() -> bool:
            """Every answer differs, so the index grows, and the larger index is stored again."""
            ask(first)
            return total(metrics(first), "dotllm_writes_total", level="store", outcome="stored") >= 2

        until(written_again)
        assert entries(url) >= 1
        before = total(metrics(second), "dotllm_load_seconds_count", level="store")
        started = time.monotonic()
        ask(second)
        took = time.monotonic() - started
        until(lambda: total(metrics(second), "dotllm_load_seconds_count", level="store") == before + 1)
        until(lambda: total(metrics(second), "dotllm_compiles_total", kind="json_schema", outcome="cached") == 1)
        cold, warm = logged(first, "compile"), logged(second, "store")
        assert warm["warmth"] > 3 * cold["warmth"], "it knows what the requests of the first server found"
        print(
            f"\n{url.split(':')[0]}: first request of the second server {took:.2f} s (compiling takes {COMPILE:g} s);"
        )
        print(f"states known: {cold['warmth']} when compiled, {warm['warmth']} when fetched")
        if stop_store is None:
            return
        stop_store.kill()
        stop_store.wait()
        for number in range(12):
            started = time.monotonic()
            answer = complete(second, MODEL, structured_outputs={"regex": f"[a-z]{{{number + 1}}}"})
            assert answer.status == 200 and time.monotonic() - started < 10
        ask(second)
        # The server has noticed the dead store by now, when reading or writing. No request has noticed anything.
        until(lambda: total(metrics(second), "dotllm_store_failures_total") > 0)
        assert total(metrics(second), "dotllm_compiles_total", outcome="failed") == 0
        assert second.healthy() and first.healthy()


@pytest.mark.parametrize("kind", sample(("redis", "file")))
def test_the_second_server_starts_warm(
    kind: str, demo_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Redis also dies. (`compilation/test_store.py` always tries files, without servers.)"""
    url, process = f"file://{tmp_path}/store", None
    if kind == "redis":
        url, process = request.getfixturevalue("redis_server")
    two_servers(demo_model, tmp_path, url, process)
