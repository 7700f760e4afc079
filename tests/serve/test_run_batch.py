"""``dotllm run-batch``: vLLM's command on our backend. A refused request of a batch is one error among answers."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo.server import CPU_ENVIRONMENT, CPU_FLAGS
from tests.serve import zygote

pytestmark = pytest.mark.serve


def line(name: str, model: str, **constraint: Any) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, **constraint}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})


def test_run_batch(demo_model: Path, tmp_path: Path) -> None:
    """A refusal ends only its own line, whether the engine finds it (its late verdict cancelled the task that asked)
    or the parser of the line."""
    schema = {"enum": ["red", "green"]}
    lines = [
        line(
            "schema",
            str(demo_model),
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        ),
        line("refused", str(demo_model), structured_outputs={"regex": r"(?<n>a)\k<n>"}),
        line("no schema", str(demo_model), response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
        line("another kind", str(demo_model), structured_outputs={"json_schema": schema}),
        line("a list", str(demo_model), structured_outputs=[]),
        line("regex", str(demo_model), structured_outputs={"regex": "[0-9]{4}"}),
    ]
    asked, answered = tmp_path / "asked.jsonl", tmp_path / "answered.jsonl"
    asked.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "dotllm", "run-batch", "-i", str(asked), "-o", str(answered)]
    command += ["--model", str(demo_model), "--max-model-len", "1024", *CPU_FLAGS]
    status, said = zygote.run(command, {**os.environ, **CPU_ENVIRONMENT}, 550)
    assert status == 0, said[-4000:]
    answers = {answer["custom_id"]: answer for answer in map(json.loads, answered.read_text().splitlines())}
    for name, reason in (
        ("refused", "back-reference"),
        ("no schema", "response_format.json_schema.schema is missing"),
        ("another kind", "structured_outputs has no field 'json_schema'"),
        ("a list", "structured_outputs is an object with one of json"),
    ):
        assert answers[name]["response"]["status_code"] == 400
        assert reason in answers[name]["error"]["error"]["message"]
    texts = {
        name: answers[name]["response"]["body"]["choices"][0]["message"]["content"] for name in ("schema", "regex")
    }
    assert json.loads(texts["schema"]) in schema["enum"] and re.fullmatch("[0-9]{4}", texts["regex"])
