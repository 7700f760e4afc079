"""Which tokens can end a request's reasoning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

from dotllm.vllm_plugin.gpu import reasoning, reasoning_ends

pytestmark = pytest.mark.serve


class OneToken(BaseThinkingReasoningParser):
    start_token, end_token = "<think>", "</think>"

    def __init__(self, end: int = 7) -> None:
        self.start_token_id, self.end_token_id = 6, end


class LooksAtTheText(OneToken):
    def is_reasoning_end_streaming(self, input_ids: Any, delta_ids: Any) -> bool:
        return 9 in delta_ids


def test_parsers_that_look_for_one_token() -> None:
    assert reasoning_ends.ends_of(OneToken()) == {7}


def test_parsers_that_name_their_tokens() -> None:
    """As those of Qwen3 since vLLM 0.32."""
    named = SimpleNamespace(find_reasoning_end=lambda tokens: None, reasoning_end_token_ids=frozenset([7, 8]))
    assert reasoning_ends.ends_of(named) == {7, 8}
    named.reasoning_end_token_ids = frozenset()  # it goes by the text, then
    assert reasoning_ends.ends_of(named) is None


def test_of_others_nothing_is_known() -> None:
    assert reasoning_ends.ends_of(LooksAtTheText()) is None
    assert reasoning_ends.ends_of(SimpleNamespace(reasoning_end_token_ids=frozenset([7]))) is None


class Manager:
    """vLLM's, with a reasoning parser."""

    reasoner_cls: Any = object
    enable_in_reasoning = False


def reasoning_of(monkeypatch: pytest.MonkeyPatch, *parsers: Any) -> Any:
    """A `Reasoning` with a free request for each of ``parsers``, called "0", "1", …"""
    monkeypatch.setattr(reasoning, "stance_of", lambda *_: SimpleNamespace(holds=False, forbidden=()))
    found = reasoning.Reasoning(SimpleNamespace())  # type: ignore[arg-type]
    for i, parser in enumerate(parsers):
        structured = SimpleNamespace(reasoner=parser, reasoning_ended=False)
        request = SimpleNamespace(
            request_id=str(i), num_tokens=5, structured_output_request=structured, num_output_placeholders=0
        )
        assert found.begins(request, SimpleNamespace(stay_free=lambda *_: None), Manager())
    return found


def taken(found: Any, drawn: list[int], dropped: list[int]) -> tuple[list[int], list[int], list[int]]:
    """(slots that took freely, positions of the free and the dropped, those asked about) for requests "0", "1", …"""
    freely: list[int] = []
    walk = SimpleNamespace(took_freely=lambda slots: freely.extend(slots.tolist()))
    ids, slots = [str(i) for i in range(len(drawn))], 10 + np.arange(len(drawn), dtype=np.int32)
    return freely, *found.take(walk, ids, slots, [[token] if token else [] for token in drawn], dropped)


def test_vllm_is_asked_about_tokens_that_may_be_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasoning_of(monkeypatch, OneToken(7), OneToken(8))
    assert taken(found, [1, 7, 7], []) == ([10, 11], [0, 1], [1])  # (the third is constrained)
    assert taken(found, [8, 0, 1], [1, 2]) == ([10], [0, 1, 2], [0, 1, 2])
    found.free["0"].structured_output_request.reasoning_ended = True
    assert found.end(None, (), {"0"}) == [] and list(found.free) == ["1"]


def test_vllm_is_asked_about_all_tokens_where_the_end_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasoning_of(monkeypatch, OneToken(7), LooksAtTheText())
    assert taken(found, [1, 2, 3], []) == ([10, 11], [0, 1], [0, 1])
    found.forget("1")
    found.forget("0")
    assert taken(found, [1, 2, 3], [2]) == ([], [2], [2])


def test_after_a_step_that_was_not_walked_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasoning_of(monkeypatch, OneToken(7), OneToken(7))
    taken(found, [1, 1], [])
    found.free["1"].structured_output_request.reasoning_ended = True
    found.end(None, (), {"0"})
    assert "1" in found.free, "vLLM had not been asked about it"
    found.end(None, (), None)
    assert "1" not in found.free


@pytest.mark.parametrize("name", ["deepseek_r1", "glm45", "hunyuan_a13b", "kimi_k2", "minimax_m2", "mistral", "step3"])
def test_what_is_known_of_vllms_own_is_what_they_do(name: str) -> None:
    """Of each parser that an end is known of: any other token leaves the reasoning as it is."""
    from vllm.reasoning import ReasoningParserManager

    try:
        parser_class: Any = ReasoningParserManager.get_reasoning_parser(name)
    except (KeyError, ImportError):
        pytest.skip(f"this vLLM has no {name}")
    parser = object.__new__(parser_class)
    try:
        parser.start_token_id, parser.end_token_id = 6, 7
    except AttributeError:
        pytest.skip("its tokens are found in another way")
    ends = reasoning_ends.ends_of(parser)
    if ends is None:
        return
    assert ends == {7}
    for before in ([1, 2], [6, 1], [1]):
        for token in (1, 2, 5, 6, 8, 9):
            assert not parser.is_reasoning_end_streaming([*before, token], [token])
        assert parser.is_reasoning_end_streaming([*before, 7], [7])
