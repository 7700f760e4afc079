"""What is kept of a server's requests."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from dotllm import Vocabulary
from dotllm.compilation import Specification
from dotllm.inspector.inspector import MOST_TOKENS, BadQuestion
from dotllm.inspector.live import MOST_REQUESTS, Live, LiveInspector, begin, take

DIGITS = Specification.create("regex", "[0-9]+")


def test_tokens_are_kept_under_the_constraint_only(vocabulary: Vocabulary) -> None:
    live: OrderedDict[str, Live] = OrderedDict()
    begin(live, "a", Live(DIGITS, lambda tokens: tokens[2:]))
    take(live, "a", [1, 2, ord("7")], None)
    take(live, "unknown", [3], None)
    inspector = LiveInspector(vocabulary, "", live)
    request = inspector.answer("request", {"id": "a"})
    assert request == {"kind": "regex", "text": "[0-9]+", "options": {}, "tokens": [ord("7")], "end": ""}
    take(live, "a", [ord("8")], "stop")
    assert inspector.answer("requests", {})["requests"][0] == {
        "id": "a", "kind": "regex", "text": "[0-9]+", "tokens": 4, "end": "stop"
    }  # fmt: skip
    walked = inspector.answer("walk", inspector.answer("request", {"id": "a"}))
    assert [step["text"] for step in walked["steps"]] == ["7", "8", ""]


def test_friction_of_fields(vocabulary: Vocabulary) -> None:
    inspector = LiveInspector(vocabulary, "", OrderedDict())
    specification = Specification.create("json_schema", '{"properties": {"a": {"const": 1}}, "required": ["a"]}')
    tokens = vocabulary.encode(b'{"a":1}')
    likeliest = [{tokens[0]: -0.7, ord("x"): -0.7}, *({token: 0.0} for token in tokens[1:-1]), {ord("?"): 0.0}]
    found = inspector.friction(specification, tokens, likeliest)
    assert [round(most, 2) for _, most in found["taken"]] == [0.5, *[0.0] * (len(tokens) - 2), 1.0]
    assert {path: round(most, 2) for path, (_, most) in found["fields"].items()} == {"": 0.5, "/a": 1.0}
    assert inspector.friction(DIGITS, [ord("1")], [{ord("1"): 0.0}])["fields"] == {}


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
