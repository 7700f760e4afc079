"""Twins that are not servers: the batch runner, offline engines; and the process that generates requests."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dotllm.demo.server import CPU_ENVIRONMENT, CPU_FLAGS
from tests.serve import zygote
from tests.twins import answers, cases, servers

ROOT = Path(__file__).parents[2]


def generated(openapi: Path, paths: list[str], most: int) -> list[cases.Case]:
    """Requests that schemathesis makes from a description; none if it is not installed."""
    if importlib.util.find_spec("schemathesis") is None:
        print("schemathesis is not installed: it makes no requests (make twin-tests installs it)")
        return []
    kept = openapi.with_suffix(
        f".{hashlib.sha256(openapi.read_bytes() + repr((paths, most)).encode()).hexdigest()[:12]}"
    )
    if kept.exists():
        return [json.loads(line) for line in kept.read_text().splitlines()]
    script = Path(__file__).with_name("generate_script.py")
    command = [sys.executable, str(script), str(openapi), str(most), *paths]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    kept.write_text(ran.stdout)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def environments() -> tuple[dict[str, str], dict[str, str]]:
    """The environments of a plain process and of ours."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    ours = {**os.environ, **CPU_ENVIRONMENT, **servers.ENVIRONMENT, "PYTHONPATH": path}
    ours.pop("VLLM_PLUGINS", None)
    return {**ours, **servers.PLAIN}, ours


def both(command: Callable[[str], list[str]], read: Callable[[str, str], Any]) -> list[Any]:
    """The results of ``read``, applied to the name and output of a plain process and of ours."""

    def run(who: str, environment: dict[str, str]) -> Any:
        status, said = zygote.run(command(who), environment, how=("plain",) if who == "plain" else ())
        assert status == 0, said[-4000:]
        return read(who, said)

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(run, ("plain", "ours"), environments())]


def result(said: str) -> Any:
    """The result that a script has printed."""
    return json.JSONDecoder().raw_decode(said.rpartition("RESULT ")[2])[0]


def batch(folder: Path) -> tuple[list[tuple[str, str, int]], dict[str, int]]:
    """`vllm run-batch` and `dotllm run-batch` on every line that they can read, and on a line with an unknown route."""
    rows, count, left_out = list[tuple[str, str, int]](), 0, 0
    script = str(Path(__file__).with_name("batch_script.py"))
    for kind in ("generate", "embed", "cross-encoder"):
        model = servers.made(kind, folder / "models")
        asked = folder / f"{kind}-batch.jsonl"
        written = batch_lines(kind, str(model))
        asked.write_text("\n".join(written) + "\n")
        status, said = zygote.run([sys.executable, script, str(asked)], environments()[0], how=("plain",))
        assert status == 0, said[-4000:]
        lines = result(said)
        left_out += len(written) - len(lines)
        asked.write_text("\n".join(lines) + "\n")
        flags = [flag for flag in servers.KINDS[kind].flags if flag not in servers.ONLY_SERVERS]

        def command(who: str, kind: str = kind, more: tuple[str, ...] = (str(model), *CPU_FLAGS, *flags)) -> list[str]:
            files = ["-i", str(folder / f"{kind}-batch.jsonl"), "-o", str(folder / f"{kind}-{who}.jsonl")]
            ours = [sys.executable, "-m", "dotllm", "run-batch", *files, "--model", *more]
            return ours if who == "ours" else servers.plain(ours)

        def read(who: str, _: str, kind: str = kind) -> dict[str, Any]:
            answered = (folder / f"{kind}-{who}.jsonl").read_text().splitlines()
            return {line["custom_id"]: line for line in map(json.loads, answered)}

        results = both(command, read)
        assert len(results[0]) == len(lines)
        count += len(lines)
        for name, plain in results[0].items():
            what = answers.between(answers.settled(plain), answers.settled(results[1].get(name)), "line")
            rows.append((f"{kind}: {name}", what, 1))
    return rows, {"written": count, "not read": left_out}


def batch_lines(kind: str, model: str) -> list[str]:
    """The lines of a batch: the requests of a kind's files that go to a batch's routes."""
    routes = ("/v1/chat/completions", "/v1/embeddings", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank")
    found = [
        {"custom_id": case["name"], "method": "POST", "url": case["path"], "body": {**case["body"], "model": model}}
        for file in servers.KINDS[kind].cases
        for case in cases.of_file(file)
        if case["path"] in routes and "body" in case and not case["body"].get("stream") and "$" not in json.dumps(case)
    ]
    said: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    wrong = {"custom_id": "an unknown route", "method": "POST", "url": "/v1/nothing", "body": said}
    return [json.dumps(line) for line in (*found, wrong)]


def offline(folder: Path) -> tuple[list[tuple[str, str, int]], dict[str, int]]:
    """`LLM` with and without the plugin: what each method returns."""
    rows, count = list[tuple[str, str, int]](), 0
    script = str(Path(__file__).with_name("offline_script.py"))
    for kind in ("generate", "embed", "cross-encoder", "classify", "reward"):
        command = [sys.executable, script, kind, str(servers.made(kind, folder / "models"))]
        results = both(
            lambda _, command=command: command,
            lambda _, said: result(said),
        )
        count += len(results[0])
        for name, plain in results[0].items():
            what = answers.between(answers.settled(plain), answers.settled(results[1].get(name)), "result")
            rows.append((f"{kind}: {name}", what, 1))
    return rows, {"written": count}
