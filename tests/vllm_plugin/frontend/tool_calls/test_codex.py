"""A recorded session of the Codex CLI 0.171 with vLLM's front end and ours.

``corpus/codex_session.jsonl`` has a line for each turn: the body that Codex sent, and the items that came back. A walk
under the mask wrote the answers (`played_server`), and a proxy demanded ``apply_patch`` in the lines with ``forced``.
Codex added a file for the second call. It refused the other calls, which update nothing: its grammar allows them, its
reader does not.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("vllm")
pytest.importorskip("lark")

from benchmarks.grammar_calls import PATCH, Grammar
from tests.conftest import ROOT
from tests.vllm_plugin.played_server import NAME, PlayedServer

LINES = (ROOT / "tests" / "corpus" / "codex_session.jsonl").read_text(encoding="utf-8").splitlines()
TURNS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def patches(items: list[dict[str, Any]]) -> list[str]:
    return [item["input"] for item in items if item["type"] == "custom_tool_call" and item["name"] == "apply_patch"]


def test_every_patch_that_came_is_one() -> None:
    found = [patch for turn in TURNS for patch in patches(turn["came"])]
    assert found and all(Grammar("lark", PATCH).accepts(patch) for patch in found)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: f"{len(turn['sent']['input'])} items")
def test_what_it_sends_is_taken(turn: dict[str, Any], played: PlayedServer) -> None:
    """This includes earlier calls and their results."""
    for forced in ({}, {"tool_choice": {"type": "custom", "name": "apply_patch"}}):
        answer = played.post("/v1/responses", {**turn["sent"], "model": NAME, "max_output_tokens": 500, **forced})
        assert answer.status == 200 and '"input_grammar"' in answer.constraints[0].structural_tag
        assert answer.body[-1]["type"] == "response.completed"
        came = patches(answer.body[-1]["response"]["output"])
        assert bool(came) is bool(forced) and all(Grammar("lark", PATCH).accepts(patch) for patch in came)
