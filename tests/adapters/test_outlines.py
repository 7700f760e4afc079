"""Outlines' generator with our backend. Outlines is not a dependency: skipped where it is not installed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

outlines = pytest.importorskip("outlines")

from dotllm import InvalidSpecError  # noqa: E402
from dotllm.outlines import DotllmBackend  # noqa: E402

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture(scope="module")
def model(demo_model: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    return outlines.from_transformers(AutoModelForCausalLM.from_pretrained(demo_model), tokenizer)


def test_three_kinds(model: Any) -> None:
    backend = DotllmBackend(model)
    processors = {
        r'\{ *"a" *: *[12](\.0+)? *\}': backend.get_json_schema_logits_processor(json.dumps(SCHEMA), " ?"),
        "[a-c]{3}": backend.get_regex_logits_processor("[a-c]{3}"),
        "a+(true|false)": backend.get_cfg_logits_processor('start: "a" B %json {"type": "boolean"}\nB: /a{0,3}/'),
    }
    for pattern, processor in processors.items():
        generate = outlines.Generator(model, processor=processor)
        for _ in range(2):
            text = generate("?", max_new_tokens=40, do_sample=True)
            assert re.fullmatch(pattern, text), text


def test_refusals(model: Any) -> None:
    with pytest.raises(InvalidSpecError):
        DotllmBackend(model).get_regex_logits_processor("(")
    with pytest.raises(ValueError, match="Transformers"):
        DotllmBackend(object())
