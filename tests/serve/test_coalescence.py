"""Forward steps with and without coalescence: a count, on a real engine on the CPU. And the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo.server import CPU_ENVIRONMENT

pytestmark = pytest.mark.serve

SCRIPT = Path(__file__).with_name("coalescence_script.py")
VALID = (
    r'\{"measurement_station":"(northern|southern) harbour","temperature_in_celsius":[0-9]{1,2},'
    r'"is_calibrated_instrument":(true|false)\}'
)


MODES = {
    "off": {"DOTLLM_COALESCENCE": "off"},
    "lossless": {"DOTLLM_COALESCENCE": "lossless"},
    "canonical": {"DOTLLM_COALESCENCE": "canonical"},
    "off --ngram": {"DOTLLM_COALESCENCE": "off"},
    "lossless --ngram": {"DOTLLM_COALESCENCE": "lossless"},
}


@pytest.fixture(scope="module")
def results(demo_model: Path) -> dict[str, Any]:
    """What the script found in each mode."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(demo_model), json.dumps(MODES)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, **CPU_ENVIRONMENT, "DOTLLM_DISK_BYTES": "0"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    lines = (line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found = {one.pop("mode"): one for one in map(json.loads, lines)}
    assert list(found) == list(MODES)
    return found


@pytest.mark.parametrize("run", ["greedy", "greedy batch", "free"])
def test_lossless_gives_the_same_tokens(results: dict[str, Any], run: str) -> None:
    assert results["lossless"][run]["ids"] == results["off"][run]["ids"]
    assert results["lossless --ngram"][run]["ids"] == results["off"][run]["ids"]
    assert results["off --ngram"][run]["ids"] == results["off"][run]["ids"], "whichever drafts are verified"


def test_fewer_steps(results: dict[str, Any]) -> None:
    """A model with random weights spells forced text at random, so lossless saves it little, canonical nearly all."""
    steps = {mode: result["greedy"]["steps"] for mode, result in results.items()}
    tokens = {mode: len(result["greedy"]["ids"][0]) for mode, result in results.items()}
    assert steps["off"] == tokens["off"], "one step a token"
    assert steps["lossless"] < steps["off"]
    assert steps["canonical"] <= tokens["canonical"] / 2
    assert steps["lossless --ngram"] <= steps["off --ngram"] <= steps["off"]


def test_a_free_request_has_its_steps(results: dict[str, Any]) -> None:
    assert results["lossless"]["free"]["steps"] == results["off"]["free"]["steps"]


@pytest.mark.parametrize("mode", ["lossless", "canonical", "lossless --ngram"])
def test_answers_are_valid(results: dict[str, Any], mode: str) -> None:
    import re

    for run in ("greedy", "greedy batch", "sampled"):
        assert all(re.fullmatch(VALID, text) for text in results[mode][run]["texts"])


def test_what_was_proposed_is_counted(results: dict[str, Any]) -> None:
    counts = results["canonical"]["counts"]
    assert counts["accepted"] == counts["proposed"] > 0, "in canonical mode every forced token is accepted"
    counts = results["lossless"]["counts"]
    assert 0 < counts["accepted"] < counts["proposed"]
    for mode in ("lossless", "canonical", "lossless --ngram"):
        counts = results[mode]["counts"]
        assert results[mode]["metrics"] == [counts["proposed"], counts["accepted"]]
    assert results["off"]["metrics"] == [0, 0]
