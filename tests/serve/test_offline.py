"""``import dotllm``, then vLLM's ``LLM``: generation and beam search under constraints, without a server."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.serve import faults, scripts
from tests.serve.releases import before

pytestmark = pytest.mark.serve

FAULTS = [{"needle": "boom", "do": "fail"}]


def test_offline(demo_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(demo_model, tmp_path / "model")
    # A second end, as in most chat models: it ends generation and, since 0.33, beams (until then the tokenizer's does).
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    environment = faults.environment(tmp_path / "faults", FAULTS)
    result, output = scripts.run("offline_script.py", model, environment=environment)
    assert all(re.fullmatch(r"[0-9]{4}-[01][0-9]", text) for text in result["regex"])
    assert set(result["choice"]) <= {"yes", "no"}
    assert set(result["json"]) <= {'{"a":true}', '{"a":false}'}
    assert "VLLMValidationError" in result["refused"] and "group" in result["refused"]
    failed, fine = result["failed"]
    why = "the specification could not be compiled: RuntimeError: injected failure"
    assert failed == ["", "error", why] and why in output
    assert re.fullmatch("fine[0-9]", fine[0]) and fine[1:] in (["stop", None], ["stop", 0])  # either of the two ends
    assert result["after"] == ["alive"] * 4
    assert len(result["before"]) > 3
    for by_mass, read in result["before"]:
        assert by_mass == pytest.approx(read, abs=0.03), "what the mask left, and what the model says without it"
    assert 1 <= len(result["beams"]) <= 2  # vLLM keeps the allowed tokens among the likeliest
    for text in result["beams"]:
        assert text.removeprefix("Hello").removesuffix("<|im_end|>") in {"one", "two", "three"}, text
    assert result["refused beams"] == ["VLLMValidationError"] * 3
    for text in result["beams of compact JSON"]:
        array = text.removeprefix("Hello").removesuffix("<|im_end|>")
        assert json.loads(array) == [1, 1, 1] and " " not in array and "\n" not in array, text
    # There is room for more beams than texts: a beam with the other end would be among them.
    texts = [text.removesuffix("<|im_end|>") for text in result["ends of beams"]]
    assert set(texts) == {"Hello7"} and len(texts) <= (1 if before("0.33") else 2)
