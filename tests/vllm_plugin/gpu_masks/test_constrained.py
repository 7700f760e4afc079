"""With a reasoning parser the rows of a step are the masks that vLLM's own way would fill."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from played_engine import EOS, TOKENS

pytest.importorskip("vllm")

from benchmarks.stand_ins import a_backend
from dotllm import Index
from dotllm.compilation.metrics import Metrics
from dotllm.vllm_plugin.engine_core.request_grammar import BitmaskView, RequestGrammar
from dotllm.vllm_plugin.gpu_masks import constrained as constrained_module
from dotllm.vllm_plugin.gpu_masks import manager_hook, worker_hooks
from dotllm.vllm_plugin.gpu_masks.message import NO_MASK, MaskRows
from dotllm.vllm_plugin.gpu_masks.rows import RowSender

pytestmark = pytest.mark.serve

END = ord("!")  # of the reasoning


class Reasoner:
    """vLLM's ``ReasoningParser``, as far as the manager asks it."""

    def __init__(self, **_: Any) -> None:
        pass

    def is_reasoning_end(self, token_ids: list[int]) -> bool:
        return END in token_ids


@pytest.fixture
def manager(vllm_config: Any, index: Index) -> Any:
    from vllm.v1.structured_output import StructuredOutputManager

    worker_hooks.apply()
    made = StructuredOutputManager(vllm_config)
    made.reasoner_cls = Reasoner
    made.tokenizer = None
    backend = a_backend(vocabulary=index.vocabulary, compiler=SimpleNamespace(metrics=Metrics()))
    backend.row_sender = RowSender(index.space)
    made.backend = backend
    # as in an engine of 256 requests
    made._grammar_bitmask = backend.allocate_token_bitmask(256)
    made.fill_bitmask_parallel_threshold, made.fill_bitmask_parallel_batch_size = 128, 16
    made.executor_for_fillmask = ThreadPoolExecutor(2)
    return made


def request(index: Index, prompt: list[int], said: list[int], ended: bool | None) -> Any:
    grammar = RequestGrammar(index.guide(), (), index.vocabulary, BitmaskView())
    assert grammar.accept_tokens("r", said)
    structured = SimpleNamespace(
        grammar=grammar,
        _grammar=grammar,
        reasoning_ended=ended,
        reasoner=None,
        reasoning_parser_kwargs=None,
        masked_reasoning_end_ids=None,
    )
    return SimpleNamespace(
        structured_output_request=structured, prompt_token_ids=prompt, use_structured_output=True, all_token_ids=prompt
    )


def requests(index: Index, copies: int) -> dict[str, Any]:
    kinds = (
        ([1, 2], [], None),  # has to reason first
        ([1, END], [], None),  # the prompt ends the reasoning
        ([1, 2], [], False),
        ([1, 2], [ord("{")], True),
        ([1, 2], [*b'{"number_of_items":7,"shipping_address":"","is_gift":true}', EOS], True),  # has ended
    )
    return {f"{n}-{i}": request(index, *kind) for n in range(copies) for i, kind in enumerate(kinds)}


@pytest.mark.parametrize("copies", [1, 40])  # vLLM fills many bitmasks on threads
def test_rows_are_vllms_bitmasks(manager: Any, index: Index, copies: int) -> None:
    original = inspect.unwrap(type(manager).grammar_bitmask)
    expected = np.array(original(manager, requests(index, copies), list(requests(index, copies)), {}))
    asked = requests(index, copies)
    found = manager.grammar_bitmask(asked, list(asked), {})
    assert isinstance(found, MaskRows) and found.counts.tolist() == [1] * len(asked)
    rows = dict(zip(found.new_slots.tolist(), found.new_rows, strict=True))
    for slot, mask in zip(found.slots.tolist(), expected, strict=True):
        assert np.array_equal(np.full_like(mask, -1) if slot == NO_MASK else rows[slot], mask)
    assert found.slots.tolist().count(NO_MASK) == 3 * copies
    assert constrained_module.FILLS not in vars(manager)


def test_nothing_but_free_requests(manager: Any, index: Index) -> None:
    asked = {"a": request(index, [1], [], None)}
    assert manager.grammar_bitmask(asked, ["a"], {}).slots.tolist() == [NO_MASK]


def test_what_is_not_understood_is_left_to_vllm(manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests(index, 1)
    of_vllm = type(manager)._fill_bitmasks

    def forbids(self: Any, batch: Any) -> None:  # as vLLM 0.33 does while a model reasons
        of_vllm(self, [entry[:3] for entry in batch])

    monkeypatch.setattr(type(manager), "_fill_bitmasks", forbids)
    original = inspect.unwrap(type(manager).grammar_bitmask)
    found = constrained_module.stances(manager, original, asked, list(asked))
    assert found is not None and sum(stance.holds for stance in found) == 3
    assert constrained_module.stances(manager, lambda *_: None, asked, list(asked)) is None
    assert manager_hook._message_of(None, manager.backend.row_sender) is None
    assert len(manager.grammar_bitmask(asked, list(asked), {}).slots) == len(asked)


def test_tokens_that_would_end_the_reasoning_wrongly_are_masked(manager: Any, index: Index) -> None:
    """vLLM 0.33 forbids them while a model reasons; rows serve for that, too, in any epoch."""
    asked = requests(index, 1)
    names = list(asked)

    def with_forbidden(self: Any, all_requests: Any, ids: list[str], drafts: Any) -> None:
        kinds = [(False, (3, 40)), (True, (3,)), (False, ()), (True, ()), (False, (3, 40))]
        self._fill_bitmasks(
            [(all_requests[i].structured_output_request.grammar, n, *kinds[n]) for n, i in enumerate(ids)]
        )

    sender = manager.backend.row_sender
    for _ in range(4):
        found = constrained_module.stances(manager, with_forbidden, asked, names)
        message = manager_hook._message_of(found, sender)
        masks = index.space.rows[message.slots[0]].view(np.uint32)
        allowed = [token for token in range(len(TOKENS)) if masks[token >> 5] >> (token & 31) & 1]
        assert sorted(set(range(len(TOKENS))) - set(allowed)) == [3, 40]
        assert message.slots[4] == message.slots[0] and message.slots[2] == NO_MASK
        assert message.slots[1] >= 0 and message.slots[1] != message.slots[0]
        index.space.collect()


def test_reasoning_with_drafts_is_vllms(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "on")
    assert "reasoning" not in manager_hook.why_not(manager)
    config = SimpleNamespace(
        parallel_config=manager.vllm_config.parallel_config, model_config=None, num_speculative_tokens=3
    )
    monkeypatch.setattr(manager, "vllm_config", config)
    assert "reasoning parser" in manager_hook.why_not(manager)
    assert len(TOKENS) > END
