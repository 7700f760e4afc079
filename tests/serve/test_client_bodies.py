"""Recorded requests of client libraries, sent again to a server with a trained model: no server error, no free text,
and every finished answer is valid, without keys that nobody has named.

This tries each kind of request. `vllm_plugin/frontend/test_client_bodies.py` also tries each client and each field,
without a server. With BODIES=all, both send all of them.

    BODIES=all SERVE_BODIES=out.json pytest tests/serve/test_client_bodies.py      also writes a row for each request
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dotllm.demo.server import Server
from tests import client_bodies
from tests.client_bodies import COUNTS_TOKENS

pytestmark = pytest.mark.serve
ASKED = client_bodies.sample(fields=False)
AT_ONCE = 64  # all: a step with many answers takes little longer than one with few
MOST_TOKENS, MOST_FREE = 130, 16
"""Tokens of an answer; the second if nothing is asked of it."""


@pytest.fixture(scope="module")
def answers(trained_server: Server) -> Iterator[list[tuple[dict[str, Any], dict[str, Any], httpx.Response]]]:
    def ask(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], httpx.Response]:
        left_out = ("stream", "stream_options")
        body = {name: value for name, value in row["body"].items() if name not in left_out} | {"model": "demo"}
        limits = [name for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body]
        name = limits[0] if limits else "max_output_tokens" if row["path"] == "/v1/responses" else "max_tokens"
        most = MOST_TOKENS if client_bodies.asked(body).is_constrained else MOST_FREE
        body[name] = min(body.get(name) or most, most)
        return row, body, httpx.post(f"{trained_server.url}{row['path']}", json=body, timeout=1800)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [*pool.map(ask, ASKED)]
    yield asked
    print_table(asked)


def print_table(asked: list[tuple[dict[str, Any], dict[str, Any], httpx.Response]]) -> None:
    """By client: requests, answered, refused, constrained, finished, valid, with invented keys."""
    counts: dict[str, Counter[str]] = {}
    for row, body, response in asked:
        count = counts.setdefault(row["client"], Counter())
        count["requests"] += 1
        count[str(response.status_code)] += 1
        if response.status_code == 200 and row["path"] != COUNTS_TOKENS:
            constrained = client_bodies.asked(body).is_constrained
            verdict = client_bodies.judge(row["path"], body, response.json())
            count["constrained"] += constrained
            count["ended"] += constrained and verdict.finished
            count["valid"] += constrained and verdict.finished and verdict.valid
            count["invented"] += verdict.invented
    counts["all"] = sum(counts.values(), Counter())
    columns = ["requests", "200", "400", "constrained", "ended", "valid", "invented"]
    print("\n" + " | ".join(["client", *columns]))
    for client, count in counts.items():
        print(" | ".join([client, *(str(count[column]) for column in columns)]))
    if path := os.environ.get("SERVE_BODIES"):
        Path(path).write_text(json.dumps([[row, response.status_code, response.text] for row, _, response in asked]))


def test_each_is_answered_as_asked_or_refused_with_a_remedy(answers: Any) -> None:
    for row, body, response in answers:
        assert response.status_code in (200, 400), (row["client"], response.text)
        if response.status_code == 400:
            assert response.json()["error"]["param"], (row["client"], response.text)
        elif row["path"] != COUNTS_TOKENS:
            verdict = client_bodies.judge(row["path"], body, response.json())
            assert verdict.valid and not verdict.invented, (row["client"], body, verdict.what)


def test_most_are_answered(answers: Any) -> None:
    assert sum(response.status_code == 200 for _, _, response in answers) >= 0.9 * len(ASKED)
