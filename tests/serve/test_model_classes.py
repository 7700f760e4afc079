"""Every kind of model that vLLM runs on CPUs answers every specification: mixtures, hybrids, images, audio, LoRA.

The models are tiny and their weights random (`model_classes.py`), so their answers show the constraint.
docs/testing.md lists what vLLM itself cannot run on a CPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.serve import model_classes, scripts

pytestmark = pytest.mark.serve

RUN = list(model_classes.KINDS) if os.environ.get("MODEL_CLASSES") == "all" else ["MoE", "image", "LoRA"]
"""Whether to run all kinds, which takes minutes."""
LIMITS = {"Jamba": "no attribute 'selective_scan_fwd'"}
"""vLLM's messages about the kinds that its CPU build cannot run."""


@pytest.fixture(scope="module")
def found(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("classes")
    return scripts.run("model_classes_script.py", demo_model, folder, *RUN)[0]


@pytest.mark.parametrize("kind", RUN)
def test_every_answer_is_right(found: Any, kind: str) -> None:
    if kind in LIMITS:
        assert LIMITS[kind] in found[kind]["error"]
        return
    assert not found[kind].get("error")
    assert not found[kind]["wrong"]
    assert found[kind]["ended"] > 0.8 * found[kind]["asked"] >= 20
