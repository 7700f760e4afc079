"""A request that reasons first, on a live server: it reasons while its specification compiles, and waits only then.

The model's weights are random, so a bias ends the reasoning: the model says ``</think>`` at about every 60th token.
"""

from __future__ import annotations

import json
import math
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dotllm.demo import model
from tests.serve import faults
from tests.serve.raw import complete, metrics, total, until
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

MODEL = "demo"
SECONDS = 5.0
REASONING_TOKENS = 60
FAULTS = [
    {"needle": "SLOW", "do": "sleep", "seconds": SECONDS},
    {"needle": "LATER", "do": "sleep", "seconds": 1.0},
    {"needle": "FAILS", "do": "fail"},
]


@pytest.fixture(scope="module")
def reasoning_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model plus the two tokens that DeepSeek R1's parser looks for."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    tokenizer.add_tokens(["<think>", "</think>"])  # not as special tokens, which decoding would drop
    directory = tmp_path_factory.mktemp("reasoning") / "model"
    return model.make_with_tokenizer(directory, tokenizer.to_str().encode(), eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def server(reasoning_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("overlap-reasoning")
    environment = {**faults.environment(directory / "faults", FAULTS), "DOTLLM_DISK_BYTES": "0"}
    flags = ("--max-model-len", "4096", "--reasoning-parser", "deepseek_r1", "--dotllm-failure-ttl", "0.01")
    flags += ("--distributed-executor-backend", "mp")  # as on CPUs: the forward pass runs in another process
    with Server(reasoning_model, directory / "log", name=MODEL, flags=flags, environment=environment) as running:
        running.wait()
        yield running
        assert running.healthy(), running.log_tail(60)


@pytest.fixture(scope="module")
def end_of_reasoning(reasoning_model: Path) -> int:
    from tokenizers import Tokenizer

    token = Tokenizer.from_file(str(reasoning_model / "tokenizer.json")).token_to_id("</think>")
    assert token is not None
    return int(token)


class Streamed(NamedTuple):
    reasoning: list[float]
    """When its pieces came, in seconds after the request."""
    content: list[float]
    text: str
    errors: list[Any]


def body(regex: str, end: int, **fields: Any) -> dict[str, Any]:
    bias = math.log(8192 / REASONING_TOKENS)  # logits of random weights hardly differ
    return {
        "messages": [{"role": "user", "content": "word " * 300}],
        "max_tokens": 2000,
        "temperature": 1.0,
        "seed": 5,
        "logit_bias": {str(end): bias},
        "structured_outputs": {"regex": regex},
        **fields,
    }


def stream(server: Server, regex: str, end: int) -> Streamed:
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        json.dumps({"model": MODEL, **body(regex, end, stream=True)}).encode(),
        {"Content-Type": "application/json"},
    )
    found = Streamed([], [], "", [])
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                found.errors.append(chunk["error"])
                continue
            delta = chunk["choices"][0]["delta"]
            if delta.get("reasoning"):
                found.reasoning.append(time.perf_counter() - start)
            if delta.get("content"):
                found.content.append(time.perf_counter() - start)
                found = found._replace(text=found.text + delta["content"])
    return found


def test_it_reasons_while_its_specification_compiles(server: Server, end_of_reasoning: int) -> None:
    stream(server, "[a-z]{3}", end_of_reasoning)  # a server's first request is slow
    before = metrics(server)
    found = stream(server, "(SLOW|x)[a-z]{6}", end_of_reasoning)
    assert re.fullmatch("(SLOW|x)[a-z]{6}", found.text), found
    assert len(found.reasoning) > 5 and found.reasoning[-1] < SECONDS, "all of it while the compile ran"
    assert found.content[0] >= SECONDS, "and what is constrained waits for it"
    until(
        lambda: (
            total(metrics(server), "dotllm_request_stall_seconds_sum", where="reasoning")
            > total(before, "dotllm_request_stall_seconds_sum", where="reasoning")
        )
    )
    after = metrics(server)
    held = total(after, "dotllm_request_stall_seconds_sum", where="reasoning")
    assert 0 < held - total(before, "dotllm_request_stall_seconds_sum", where="reasoning") <= SECONDS
    assert total(after, "dotllm_request_stall_seconds_count", where="prompt") == 0, (
        "nobody was held before its reasoning"
    )
    print(
        f"\nreasoning from {found.reasoning[0]:.2f} to {found.reasoning[-1]:.2f} s, answer at {found.content[0]:.2f} s"
    )


def test_a_compile_that_ends_first_costs_no_waiting(server: Server, end_of_reasoning: int) -> None:
    found = stream(server, "(quick|x)[a-z]{6}", end_of_reasoning)
    assert re.fullmatch("(quick|x)[a-z]{6}", found.text), found


def test_a_failed_compile_ends_the_reasoning(server: Server, end_of_reasoning: int) -> None:
    answer = complete(
        server, MODEL, path="/v1/chat/completions", **body("LATERFAILS[a-z]", end_of_reasoning, max_tokens=3000)
    )
    assert answer.status == 500 and "injected failure" in answer.message, answer
    assert re.fullmatch("[a-z]{4}", stream(server, "[a-z]{4}", end_of_reasoning).text)
