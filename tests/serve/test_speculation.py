"""Speculation changes no answer: greedy answers are the same, token for token, and sampled ones follow the same law.

On vLLM's real model runners, on this machine's CPU (`played_platform`): V1, and V2 with asynchronous scheduling, where
the engine core sees drafts only after their step was launched. `speculation_script.py` has the requests,
`drafting_models.py` the drafters.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.serve import drafting_models, scripts

pytestmark = pytest.mark.serve

WHOLE = os.environ.get("SPECULATION") == "all"
"""Whether to run all of `RUNS`: nine engines, a quarter of an hour. Otherwise three engines of V1."""
ROUNDS = 10 if WHOLE else 1
RUNS = (  # runner, kind of speculation, the kind to compare with, and how many times each specification is asked
    ("V1", "ngram", "none", ROUNDS),
    ("V1", "eagle", "none", ROUNDS),
    ("V1", "eagle3", "none", 2),
    ("V1", "MTP", "no MTP", 2),
    ("V2 async", "ngram", "none", 1),
    ("V2 async", "eagle", "none", 1),
)
MOST = {("V1", "none"): ROUNDS, ("V1", "no MTP"): 2, ("V2 async", "none"): 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return drafting_models.make(tmp_path_factory.mktemp("drafting"))


@pytest.fixture(scope="module")
def plain(models: Any) -> Callable[[str, str], Any]:
    """The answers without speculation, by runner and model."""
    return functools.cache(lambda runner, kind: asked(models, runner, kind, MOST[runner, kind]))


def asked(models: Any, runner: str, kind: str, rounds: int) -> Any:
    model, speculation = models[kind]
    found, _ = scripts.run(
        "speculation_script.py", model, runner, json.dumps(speculation), rounds,
        imports_vllm_itself=runner.startswith("V2"),
    )  # fmt: skip
    return found


@pytest.mark.parametrize(("runner", "kind", "without", "rounds"), RUNS if WHOLE else RUNS[:2])
def test_greedy_answers_are_the_same(
    models: Any, plain: Callable[[str, str], Any], runner: str, kind: str, without: str, rounds: int
) -> None:
    expected, found = plain(runner, without), asked(models, runner, kind, rounds)
    assert ("cpu_model_runner" in found["runner"]) == (runner == "V1") and len(found["answers"]) >= 32 * rounds
    differ = [
        n for n, pair in enumerate(zip(found["answers"], expected["answers"], strict=False)) if pair[0] != pair[1]
    ]
    assert not differ, [(found["answers"][n], expected["answers"][n]) for n in differ[:3]]
    assert {reason for _, reason in found["answers"]} <= {"stop", "length"}
    assert found["drafts"]["allowed"] > 100 and found["drafts"]["kept"] >= 5, "nothing was drafted"
