"""The questions and the rows of `benchmarks.calibration`, without a model."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import calibration
from dotllm import Index, Vocabulary
from dotllm.bench.quality import bfcl
from dotllm.bench.quality.cases import Case, Function

COLORS = {"enum": ["red", "rose", "blue"]}


def case(text: str, properties: dict[str, Any], **wanted: list[Any]) -> Case:
    function = Function("paint", "Paints.", {"type": "object", "properties": properties})
    question = [{"role": "user", "content": text}]
    return Case(text, "multiple", question, [function], "call", lambda calls: "", wanted=[("paint", wanted)])


def test_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"color": COLORS, "size": {"type": "integer"}, "new": {"type": "boolean"}, "old": {"type": "boolean"}}
    alike = [case(text, properties, color=["red"], new=[True, ""], old=[""]) for text in ("a", "a", "b", "c")]
    monkeypatch.setattr(bfcl, "cases", lambda name: [*alike, case("d", {"size": {}}, size=[1])])
    assert [asked.name for asked in calibration.cases()] == ["a", "b"]
    schema = next(calibration.cases()).schema()
    assert schema["properties"].keys() == {"color", "new"} == set(schema["required"])


@pytest.mark.parametrize(("wanted", "right"), [("RED", True), ("rose", False)])
def test_a_row(wanted: str, right: bool) -> None:
    """The text has one token for each byte. At one place 30 tokens are likelier than the first byte of "blue"."""
    vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], 256)
    asked = case("a", {"color": COLORS}, color=[wanted])
    asked.functions[0].parameters["required"] = ["color"]
    asked = Case(**{**vars(asked), "shape": "arguments"})
    text = '{"color":"red"}'
    tokens = [*text.encode(), 256]
    chances = [{token: 1.0} for token in tokens]
    chances[10] = {ord("r"): 0.7, **dict.fromkeys(range(128, 158), 0.0), ord("b"): 0.3}
    chances[11] = {ord("e"): 0.6, ord("o"): 0.4}
    positions = []
    for likely in chances:
        ranked = sorted(likely, key=lambda token: token == ord("b"))  # ("b" comes last)
        position = Position({
            token: SimpleNamespace(logprob=math.log(likely[token]) if likely[token] else -math.inf, rank=rank)
            for rank, token in enumerate(ranked, 1)
        })  # fmt: skip
        positions.append(position)
    output = SimpleNamespace(token_ids=tokens, logprobs=positions, text=text)
    index = Index.from_json_schema(json.dumps(asked.schema()), vocabulary, any_whitespace=False)
    (row,) = calibration.rows(asked, index, output)
    assert row == {
        "case": "a", "key": "color", "probability": 0.42, "members": 3, "served": None, "mass": 0.0, "right": right,
    }  # fmt: skip


class Position(dict[int, Any]):
    """A position as the offline engine returns it."""

    log_mass = 0.0
