"""While a model reasons, tokens that would end the reasoning are masked, unless its grammar begins with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from vllm.parser.engine.adapters import ParserEngineReasoningAdapter

from dotllm import Index, Vocabulary
from dotllm.device_masks.sender import Bitmasks
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.speed.rows import message_of
from dotllm.vllm_plugin.workarounds import implicit_ends

pytestmark = pytest.mark.serve

EOS = 256
END, CALL = ord("!"), ord("<")  # both end the reasoning; the second is also part of the answer


class End(NamedTuple):
    offset: int
    implicit: bool


class Parser(ParserEngineReasoningAdapter):  # type: ignore[misc]  # vLLM is Any to mypy
    """Like vLLM 0.32's parsers that are made from a grammar of states."""

    def __init__(self) -> None:
        pass

    reasoning_end_token_ids = frozenset([END, CALL])

    def find_reasoning_end(self, tokens: list[int]) -> End:
        return next((End(i, t == CALL) for i, t in enumerate(tokens) if t in (END, CALL)), End(len(tokens), False))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), None], eos_token_ids=[EOS])


def request(index: Index | None, ended: bool | None = None) -> Any:
    grammar = None if index is None else RequestGrammar(index.guide(), (), index.vocabulary)
    structured = SimpleNamespace(grammar=grammar, _grammar=grammar, reasoning_ended=ended)
    return SimpleNamespace(
        structured_output_request=structured, sampling_params=object(), max_tokens=16, num_output_tokens=0, num_tokens=8
    )


class Manager:
    """The used part of vLLM's ``StructuredOutputManager``."""

    reasoner_cls: Any = Parser
    vllm_config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=64))

    def _get_reasoner(self, request: Any) -> Any:
        return Parser()

    def _get_constraint_bounds(self, request: Any, spec_tokens: Any) -> tuple[int, int]:
        if request.structured_output_request.reasoning_ended:
            return 0, 0
        end = Parser().find_reasoning_end(spec_tokens)
        return end.offset + (not end.implicit), end.offset + 1


def masks_of(asked: list[Any], drafts: Any = ()) -> Any:
    manager: Any = Manager()
    return message_of(manager, Bitmasks(asked[0].structured_output_request.grammar.guide.index.space), asked, drafts)


def forbidden_in(row: Any) -> list[int]:
    return [token for token in range(EOS + 1) if not int(row[token >> 5]) >> (token & 31) & 1]


@pytest.mark.parametrize("limited", [False, True], ids=["no limits", "another request had a limit"])
def test_only_ends_that_the_grammar_does_not_begin_with(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    monkeypatch.setattr(implicit_ends, "needed", lambda: True)
    monkeypatch.setattr(RequestGrammar, "limited", limited)
    monkeypatch.setenv("DOTLLM_END_IN_REASONING", "allow")
    word, call = Index.from_regex("[a-z]{2}", vocabulary), Index.from_regex("<[a-z]>", vocabulary)
    asked = {
        "word": request(word), "call": request(call), "answers": request(word, True), "reasons": request(word, False)
    }  # fmt: skip
    for _ in range(2):
        masks = masks_of(list(asked.values()))
        assert [forbidden_in(masks[row]) for row in (0, 1, 3)] == [[CALL], [], [CALL]]
        assert forbidden_in(masks[2]) == [t for t in range(EOS + 1) if not chr(t).islower() or t > 127]
    masks = masks_of([asked["reasons"], asked["call"], asked["word"]], [[65, END, 97], [], [66, -1, -1]])
    begins = forbidden_in(masks[2])
    found = [forbidden_in(masks[row]) for row in range(8)]
    assert found == [[CALL], [CALL], begins, found[3], [], [CALL], [CALL], []]


def test_of_whom_nothing_is_known(vocabulary: Vocabulary) -> None:
    assert implicit_ends.implicit_ends(SimpleNamespace()) == ()
    assert implicit_ends.implicit_ends(Parser()) == (CALL,)


def test_this_release_is_known() -> None:
    from tests.serve.releases import INSTALLED

    assert implicit_ends.needed() == (INSTALLED[:2] == (0, 32)), "once no release needs it, it can go"
