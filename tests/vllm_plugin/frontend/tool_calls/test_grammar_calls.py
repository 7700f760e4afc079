"""Many calls of custom tools, with written and random grammars: `benchmarks.grammar_calls` without a model.

That program asks a live server; here a walk under the mask answers (`played_server`). ``GRAMMAR_CALLS=250`` for more.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

pytest.importorskip("vllm")
pytest.importorskip("lark")

from benchmarks import grammar_calls
from tests.vllm_plugin.played_server import NAME, PlayedServer

CALLS = int(os.environ.get("GRAMMAR_CALLS", "30"))
KINDS = [
    f"{api}, {how}, {choice}"
    for api in ("chat", "responses")
    for how in ("whole", "streamed")
    for choice in ("named", "required")
]


def test_every_input_is_a_text_of_its_grammar(played: PlayedServer) -> None:
    seen, asked = grammar_calls.Seen(), grammar_calls.questions(seed=1)
    for question in islice(asked, 20 * CALLS):  # (the walk chooses which tool it calls)
        answer = played.post(question.path, question.body(NAME))
        seen.take(question, answer.status, answer.body)
        if seen.judged >= CALLS and all(map(seen.counts.get, KINDS)):
            break
    print(dict(seen.counts))
    assert seen.judged >= CALLS and not seen.wrong
    assert all(map(seen.counts.get, KINDS))


@pytest.mark.parametrize(("text", "accepted"), [("20", False), ("2024-05-01", True)])
def test_the_judge_of_expressions(text: str, accepted: bool) -> None:
    assert grammar_calls.Grammar("regex", r"20[0-9]{2}-[01][0-9]-[0-3][0-9]").accepts(text) is accepted


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("*** Begin Patch\n*** Add File: a\n+\n*** End Patch", True),
        ("*** Begin Patch\n*** Add File: a\n*** End Patch", False),
    ],
)
def test_the_judge_of_grammars(text: str, accepted: bool) -> None:
    assert grammar_calls.Grammar("lark", grammar_calls.PATCH).accepts(text) is accepted


@pytest.mark.parametrize("text", ["", "*** Begin Patch\n*** Upd", "*** Begin Patch\n*** Add File: a\n+\n*** End Patch"])
def test_the_judge_of_inputs_that_are_cut(text: str) -> None:
    grammar = grammar_calls.Grammar("lark", grammar_calls.PATCH)
    assert grammar.begins(text) and not grammar.begins(text + "x")


def test_a_stream_that_is_cut_is_judged() -> None:
    question = next(each for each in grammar_calls.questions(seed=1) if each.is_chat and each.is_streamed)
    question.grammars = {"write_a": grammar_calls.Grammar("regex", "ab*")}
    seen = grammar_calls.Seen()
    for text in ("ab", "ba"):
        part = {"index": 0, "custom": {"name": "write_a", "input": text}}
        choices = [{"delta": {"tool_calls": [part]}}, {"delta": {}, "finish_reason": "length"}]
        seen.take(question, 200, [{"choices": choices}])
    assert seen.counts["beginnings"] == 2 and seen.judged == 0
    assert [each["what"].endswith("begins with 'ba'") for each in seen.wrong] == [True]
