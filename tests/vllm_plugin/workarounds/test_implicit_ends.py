"""While a model reasons, tokens that end the reasoning and that its grammar does not begin with are masked."""

from __future__ import annotations

from functools import partialmethod
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

import torch
from vllm.parser.engine.adapters import ParserEngineReasoningAdapter

from dotllm import Index, Vocabulary
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.workarounds import implicit_ends

pytestmark = pytest.mark.serve

EOS = 256
END, CALL = ord("!"), ord("<")  # of the reasoning; and the second is part of the answer


class End(NamedTuple):
    offset: int
    implicit: bool


class Parser(ParserEngineReasoningAdapter):  # type: ignore[misc]  # vLLM is Any to mypy
    """As those made of a grammar of states in vLLM 0.32."""

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
    return SimpleNamespace(structured_output_request=SimpleNamespace(grammar=grammar, reasoning_ended=ended))


class Manager:
    """vLLM's ``StructuredOutputManager``, as far as it fills masks."""

    reasoner_cls: Any = Parser
    vllm_config = SimpleNamespace(structured_outputs_config=SimpleNamespace(backend="auto"))

    def __init__(self) -> None:
        self._grammar_bitmask = torch.zeros((16, 9), dtype=torch.int32)

    def _get_reasoner(self, request: Any) -> Any:
        return Parser()

    def _get_constraint_bounds(self, request: Any, spec_tokens: Any) -> tuple[int, int]:
        if request.structured_output_request.reasoning_ended:
            return 0, 0
        end = Parser().find_reasoning_end(spec_tokens)
        return end.offset + (not end.implicit), end.offset + 1

    def grammar_bitmask(
        self, requests: Any, structured_output_request_ids: list[str], scheduled_spec_decode_tokens: Any
    ) -> Any:
        row = 0
        for name in structured_output_request_ids:
            drafts = scheduled_spec_decode_tokens.get(name, [])
            _, free = self._get_constraint_bounds(requests[name], [token for token in drafts if token >= 0])
            for position in range(1 + len(drafts)):
                if position < free:
                    self._grammar_bitmask[row].fill_(-1)
                else:
                    requests[name].structured_output_request.grammar.fill_bitmask(self._grammar_bitmask, row)
                row += 1
        return self._grammar_bitmask.numpy()


def forbidden_in(row: Any) -> list[int]:
    return [token for token in range(EOS + 1) if not int(row[token >> 5]) >> (token & 31) & 1]


def test_only_ends_that_the_grammar_does_not_begin_with(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implicit_ends, "needed", lambda: True)
    replacement = partialmethod(implicit_ends._grammar_bitmask, original=Manager.grammar_bitmask)
    monkeypatch.setattr(Manager, "grammar_bitmask", replacement)
    word, call = Index.from_regex("[a-z]{2}", vocabulary), Index.from_regex("<[a-z]>", vocabulary)
    asked = {
        "word": request(word), "call": request(call), "answers": request(word, True), "reasons": request(word, False)
    }  # fmt: skip
    for _ in range(2):
        masks = Manager().grammar_bitmask(asked, list(asked), {})
        assert [forbidden_in(masks[row]) for row in (0, 1, 3)] == [[CALL], [], [CALL]]
        assert forbidden_in(masks[2]) == [t for t in range(EOS + 1) if not chr(t).islower() or t > 127]
    masks = Manager().grammar_bitmask(
        asked, ["reasons", "call", "word"], {"reasons": [65, END, 97], "word": [66, -1, -1]}
    )
    begins = forbidden_in(masks[2])
    assert [forbidden_in(masks[row]) for row in range(8)] == [
        [CALL], [CALL], begins, begins, [], [CALL], [CALL], begins
    ], "while it reasons, in each position"  # fmt: skip


def test_of_whom_nothing_is_known(vocabulary: Vocabulary) -> None:
    assert implicit_ends.implicit_ends(SimpleNamespace()) == ()
    assert implicit_ends.implicit_ends(Parser()) == (CALL,)


def test_this_release_is_known() -> None:
    from tests.serve.releases import INSTALLED

    assert implicit_ends.needed() == (INSTALLED[:2] == (0, 32)), "once no release needs it, it can go"
