"""What a server keeps of its requests."""

from __future__ import annotations

import math
from collections import OrderedDict

import pytest

from dotllm import Vocabulary
from dotllm.compilation import Specification
from dotllm.inspector.confidence import Place
from dotllm.inspector.inspector import MOST_REQUESTS, MOST_TOKENS, BadQuestion, Live, LiveInspector, begin, take

DIGITS = Specification.create("regex", "[0-9]+")


def test_tokens_are_kept_under_the_constraint_only(vocabulary: Vocabulary) -> None:
    live: OrderedDict[str, Live] = OrderedDict()
    begin(live, "a", Live(DIGITS, lambda tokens: tokens[2:]))
    take(live, "a", [1, 2, ord("7")], None)
    take(live, "unknown", [3], None)
    inspector = LiveInspector(vocabulary, "", live)
    request = inspector.answer("request", {"id": "a"})
    assert request == {"kind": "regex", "text": "[0-9]+", "options": {}, "tokens": [ord("7")], "mass": [None],
                       "fields": None, "end": ""}  # fmt: skip
    take(live, "a", [ord("8")], "stop")
    assert inspector.answer("requests", {})["requests"][0] == {
        "id": "a", "kind": "regex", "text": "[0-9]+", "tokens": 4, "end": "stop"
    }  # fmt: skip
    walked = inspector.answer("walk", inspector.answer("request", {"id": "a"}))
    assert [step["text"] for step in walked["steps"]] == ["7", "8", ""]


def test_masses_and_confidence(vocabulary: Vocabulary) -> None:
    live: OrderedDict[str, Live] = OrderedDict()
    inspector = LiveInspector(vocabulary, "", live)
    schema = '{"properties": {"a": {"type": "boolean"}}, "required": ["a"]}'
    begin(live, "a", Live(Specification.create("json_schema", schema), lambda tokens: tokens[1:]))
    tokens = [*b'{"a":true}', vocabulary.eos_token_ids[0]]
    take(live, "a", [1], None, [Place(0.0, {})])  # a token of the reasoning
    for token in tokens[:-1]:
        take(live, "a", [token], None, [Place(-0.5, {token: -0.25, ord("f"): math.log(1 - math.exp(-0.25))})])
    request = inspector.answer("request", {"id": "a"})
    assert request["mass"] == [-0.5] * 10 and request["fields"] is None, "it still runs"
    take(live, "a", tokens[-1:], "stop")
    request = inspector.answer("request", {"id": "a"})
    assert request["mass"] == [*[-0.5] * 10, None] and request["fields"].keys() == {"", "/a"}
    assert request["fields"]["/a"]["members"] == [
        {"value": False, "probability": round(1 - math.exp(-0.25), 6)}, {"value": True, "probability": 0.778801}
    ]  # fmt: skip
    begin(live, "b", Live(DIGITS, list))
    take(live, "b", [ord("1")], "stop")
    request = inspector.answer("request", {"id": "b"})
    assert request["mass"] == [None] and request["fields"] is None, "nothing was asked for"


def test_what_is_kept_has_limits(vocabulary: Vocabulary) -> None:
    live: OrderedDict[str, Live] = OrderedDict()
    for number in range(MOST_REQUESTS + 5):
        begin(live, str(number), Live(DIGITS, list))
    for _ in range(3):
        take(live, "10", [ord("1")] * MOST_TOKENS, None)
    inspector = LiveInspector(vocabulary, "", live)
    assert [one["id"] for one in inspector.answer("requests", {})["requests"]][:2] == ["36", "35"]
    assert len(live) == MOST_REQUESTS and len(live["10"].tokens) == 2 * MOST_TOKENS
    with pytest.raises(BadQuestion):
        inspector.answer("request", {"id": "0"})
