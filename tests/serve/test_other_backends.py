"""``dotllm serve --structured-outputs-config.backend xgrammar`` is vLLM with xgrammar, as the README promises."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


def test_xgrammar_serves(demo_model: Path, tmp_path: Path) -> None:
    """Simultaneous requests, each ended by its grammar. Features that only dotllm has are absent."""
    from openai import BadRequestError, OpenAI

    flags = ("--structured-outputs-config.backend", "xgrammar", "--max-model-len", "2048")
    flags += ("--structured-outputs-config.disable_any_whitespace", "true")
    with Server(demo_model, tmp_path / "log", name="random", flags=flags) as running:
        running.wait()
        client = OpenAI(base_url=f"{running.url}/v1", api_key="none", timeout=120.0, max_retries=0)

        def ask(structured: dict[str, Any]) -> str:
            done = client.completions.create(
                model="random", prompt="hi", max_tokens=64, extra_body={"structured_outputs": structured}
            )
            return str(done.choices[0].text)

        with ThreadPoolExecutor() as threads:
            texts = list(threads.map(ask, [{"regex": "[0-9]{4}-[01][0-9]"}, {"json": SCHEMA}] * 4))
        assert all(re.fullmatch("[0-9]{4}-[01][0-9]", text) for text in texts[::2])
        assert all(set(json.loads(text)) == {"ok"} for text in texts[1::2])
        with pytest.raises(BadRequestError):
            ask({"json": {**SCHEMA, "uniqueItems": True, "type": "array", "items": {"type": "integer"}}})
        assert running.healthy(), running.log_tail(40)
