"""Pooling models, which generate no text, on ``dotllm serve``: all their APIs answer as without us.

With the plugin installed, each such request of any server ended with an AttributeError: the plugin asked for a
constraint, and pooling parameters have none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo.server import Server
from tests.serve import model_classes, zygote

pytestmark = pytest.mark.serve

TEXTS = ["a red apple", "the weather of tomorrow", "an apple that is red"]


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    import httpx

    answer = httpx.post(f"{server.url}{path}", json={"model": "random", **body}, timeout=120)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
    assert "x-dotllm-warnings" not in answer.headers
    return answer.json()


def serve(model: Path, log: Path, *flags: str) -> Iterator[Server]:
    with zygote.Server(
        model, log, name="random", flags=("--runner", "pooling", "--max-model-len", "512", *flags)
    ) as one:
        one.wait()
        yield one
        assert one.healthy(), one.log_tail(60)
        said = log.read_text(errors="replace")
        assert "prepare_engine" not in said and "overlaps compilation" not in said, "nobody compiles there"
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def embedding(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(demo_model, tmp_path_factory.mktemp("embedding") / "log", "--convert", "embed")


@pytest.fixture(scope="module")
def cross_encoder(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("cross-encoder")
    model_classes.make(directory / "model", demo_model, "LoRA")  # a plain model, in spite of its name
    file = directory / "model" / "config.json"
    config = json.loads(file.read_text())
    config |= {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1, "id2label": {"0": "relevant"}}
    file.write_text(json.dumps(config))
    yield from serve(directory / "model", directory / "log", "--load-format", "dummy")


def test_embeddings(embedding: Server) -> None:
    found = post(embedding, "/v1/embeddings", {"input": TEXTS})["data"]
    for one in found:
        assert math.isclose(sum(value * value for value in one["embedding"]), 1, rel_tol=1e-3)
    assert len({tuple(one["embedding"]) for one in found}) == 3
    again = post(embedding, "/v1/embeddings", {"input": TEXTS[1]})["data"][0]["embedding"]
    assert all(map(lambda one, other: math.isclose(one, other, abs_tol=1e-3), again, found[1]["embedding"]))
    assert post(embedding, "/pooling", {"input": TEXTS[0]})["data"]


def test_scores_of_embeddings(embedding: Server) -> None:
    scores = [one["score"] for one in post(embedding, "/score", {"text_1": TEXTS[0], "text_2": TEXTS})["data"]]
    assert math.isclose(scores[0], 1, rel_tol=1e-2) and scores[0] == max(scores)


def test_a_cross_encoder(cross_encoder: Server) -> None:
    scores = [one["score"] for one in post(cross_encoder, "/score", {"text_1": TEXTS[0], "text_2": TEXTS})["data"]]
    assert len(scores) == 3 and all(0 <= score <= 1 for score in scores)
    ranked = post(cross_encoder, "/rerank", {"query": TEXTS[0], "documents": TEXTS})["results"]
    order = sorted(range(3), key=lambda number: -scores[number])
    assert [one["index"] for one in ranked] == order or len(set(scores)) < 3
    assert len(post(cross_encoder, "/classify", {"input": TEXTS})["data"]) == 3
    assert post(cross_encoder, "/pooling", {"input": TEXTS[0], "task": "classify"})["data"]
