"""Which tokens can end a request's reasoning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

from dotllm.vllm_plugin.gpu import reasoning_ends

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


def test_vllm_is_asked_about_tokens_that_may_be_the_end() -> None:
    structured = SimpleNamespace(reasoner=OneToken(), reasoning_ended=False)
    assert not reasoning_ends.goes_on(structured, [1]), "nobody has noted it"
    reasoning_ends.note(structured)
    assert reasoning_ends.goes_on(structured, [1]) and not reasoning_ends.goes_on(structured, [1, 7])
    structured.reasoning_ended = True
    assert not reasoning_ends.goes_on(structured, [1])
    structured = SimpleNamespace(reasoner=LooksAtTheText(), reasoning_ended=False)
    reasoning_ends.note(structured)
    assert not reasoning_ends.goes_on(structured, [1])


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
