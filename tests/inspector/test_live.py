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
