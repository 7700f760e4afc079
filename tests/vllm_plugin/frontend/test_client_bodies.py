"""Requests of client libraries through vLLM's whole front end and our engine: enforced, or refused with a remedy.

A random walk under the mask replaces the model (`played_server`), with and without a stream.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from tests import client_bodies
from tests.client_bodies import BODIES, COUNTS_TOKENS
from tests.serve.clients.recorder import whole
from tests.vllm_plugin.played_server import NAME, PlayedServer

REMEDIES = (
    "use ",
    "leave ",
    "bound its",
    "requires a name",
    "did you mean",
    "write ",
    "Either provide",
    "Field required",
    "Input should be",
    "input_schema",
)


ASKED = client_bodies.sample(fields=True)
NOT_PLAYED = {"stream_options", "logprobs", "top_logprobs"}
"""Fields that the played engine does not support: it has no probabilities."""


@pytest.mark.parametrize("row", ASKED, ids=[f"{row['client']}-{i}" for i, row in enumerate(ASKED)])
def test_it_is_answered_as_asked_or_refused_with_a_remedy(row: dict[str, Any], played: PlayedServer) -> None:
    ask_and_judge(row, played)


@pytest.mark.parametrize("row", client_bodies.sample(fields=False), ids=lambda row: row["client"])
def test_so_it_is_by_a_model_that_thinks(row: dict[str, Any], thinking: PlayedServer) -> None:
    ask_and_judge(row, thinking)


def ask_and_judge(row: dict[str, Any], played: PlayedServer) -> None:
    body = {**row["body"], "model": NAME, "stream": False}
    answer = played.post(row["path"], {name: value for name, value in body.items() if name not in NOT_PLAYED})
    assert answer.status in (200, 400), answer.body
    if answer.status == 400:
        error = answer.error
        assert any(word in error["message"] for word in REMEDIES) and error["param"], error
        # (Some faults of Lark grammars are found only by the compile, still before the answer begins.)
        assert not answer.constraints or "max_tokens=" in str(body), "refused when it had been sent"
        return
    if row["path"] == COUNTS_TOKENS:
        return
    wanted = client_bodies.asked(body)
    assert not (wanted.is_constrained and answer.is_free)
    verdict = client_bodies.judge(row["path"], body, answer.body)
    assert verdict.valid and not verdict.invented, verdict.what
    stream = played.post(row["path"], {**body, "stream": True})
    assert stream.status == 200 and stream.is_free is answer.is_free
    assert answer.warnings == stream.warnings
    joined = whole(row["path"], stream.body)
    assert joined is not None
    verdict = client_bodies.judge(row["path"], body, joined)
    assert verdict.valid and not verdict.invented, verdict.what


def test_most_of_them_are_answered_and_end(played: PlayedServer) -> None:
    """Otherwise the test above would judge nothing."""
    finished = 0
    for row in BODIES[::7]:
        body = {**row["body"], "model": NAME, "stream": False, "max_tokens": 400}
        body = {name: value for name, value in body.items() if name not in ("stream_options", "max_completion_tokens")}
        if row["path"] == "/v1/responses":
            body["max_output_tokens"] = body.pop("max_tokens")
        answer = played.post(row["path"], body)
        if answer.status == 200 and client_bodies.asked(body).is_constrained:
            finished += client_bodies.judge(row["path"], body, answer.body).finished
    assert finished >= 15
