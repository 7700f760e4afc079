"""Masses equal those of the full logits in float64: on both model runners, with and without speculation.

They run on this machine's CPU (`played_platform`); `mass_script.py`, which also runs on a GPU, compares. This takes
nine minutes, so it runs only with ``MASS=all``. `test_offline` always compares some with the model reading an answer.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.serve import drafting_models, scripts

pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(os.environ.get("MASS") != "all", reason="six engines, with MASS=all"),
]
RUNS = (  # runner, kind of speculation, rounds
    ("CPU", "none", 5),
    ("V1", "ngram", 30),
    ("V1", "eagle", 5),
    ("V1 async", "none", 30),
    ("V2 async", "none", 30),
    ("V2 async", "ngram", 5),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return drafting_models.make(tmp_path_factory.mktemp("drafting"))


@pytest.mark.parametrize(("runner", "kind", "rounds"), RUNS)
def test_masses_are_those_of_the_full_logits(models: Any, runner: str, kind: str, rounds: int) -> None:
    model, speculation = models[kind]
    found, _ = scripts.run(
        "mass_script.py", model, runner, json.dumps(speculation), rounds, imports_vllm_itself=runner.startswith("V2")
    )
    assert found["tokens"] > 250 * rounds and found["worst"] < 1e-5 and found["worst_before"] < 1e-5
    assert found["rows"] > 100 and found["unasked"] > 0
    assert (found["several"] > 0) == (kind != "none"), "steps of which several positions became tokens"
