"""Each field of an API's reference is read by vLLM, refused with a remedy, or listed in docs/api.md as ignored.

The references are the types of the clients' packages, openai and anthropic.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from tests.fuzz.requests import CLASSES, Outcome, ask
from tests.vllm_plugin.frontend.test_foreign_fields import BASE, FUNCTION

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
REFERENCES = {
    "chat completions": ("chat", ["openai.types.chat.completion_create_params:CompletionCreateParamsBase"]),
    "completions": ("completion", ["openai.types.completion_create_params:CompletionCreateParamsBase"]),
    "Responses": ("response", ["openai.types.responses.response_create_params:ResponseCreateParamsBase"]),
    "Messages": (
        "message",
        [
            "anthropic.types.message_create_params:MessageCreateParamsBase",
            "anthropic.types.beta.message_create_params:MessageCreateParamsBase",
        ],
    ),
}
REFUSED: dict[str, dict[str, Any]] = {"chat completions": {"functions": [FUNCTION], "function_call": {"name": "f"}}}
"""Fields that ask for a constraint in another API's way, with a value."""


def read_by_nobody(api: str) -> set[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Ignored fields")[2].partition("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| {api} |"))
    return set(re.findall(r"`(\w+)`", re.sub(r"\(type `\w+`\)", "", row)))


@pytest.mark.parametrize("api", REFERENCES)
def test_every_field_of_the_reference(api: str) -> None:
    kind, references = REFERENCES[api]
    module, _, name = CLASSES[kind].partition(":")
    fields = getattr(importlib.import_module(module), name).model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias)} | {"stream"}
    reference = {field for place in references for field in pkgutil.resolve_name(place).__annotations__}
    listed, refused = read_by_nobody(api), set(REFUSED.get(api, {}))
    assert reference - known - refused <= listed, "neither read nor listed"
    assert listed <= reference, "listed, and no field of the reference"
    assert not refused & listed


@pytest.mark.parametrize(("api", "field"), [(api, field) for api in REFERENCES for field in REFUSED.get(api, {})])
def test_what_is_refused_says_what_to_write(api: str, field: str) -> None:
    outcome = ask(REFERENCES[api][0], {**BASE[REFERENCES[api][0]], field: REFUSED[api][field]})
    assert outcome.param == field and ": use 'tool" in (outcome.refusal or "")


@pytest.mark.parametrize("api", REFERENCES)
def test_what_is_read_by_nobody_passes(api: str) -> None:
    kind, _ = REFERENCES[api]
    for field in sorted(read_by_nobody(api)):
        for value in ("x", True, {"type": "create", "format": "wav"}, [{"name": "x", "url": "y"}]):
            outcome = ask(kind, {**BASE[kind], field: value})
            assert outcome == Outcome(is_free=True) or "validation error" in (outcome.refusal or ""), (field, value)
