"""With a reasoning parser, the rows of a step equal the masks that vLLM itself would fill."""

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
from dotllm.device_masks.message import MaskRows, positions
from dotllm.device_masks.sender import Bitmasks, RowSender
from dotllm.errors import UnsupportedError
from dotllm.index.draft_rows import NO_MASK
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.extra.answer_limit import AnswerLimit
from dotllm.vllm_plugin.speed import rows
from tests.serve.releases import INSTALLED

pytestmark = pytest.mark.serve

END = ord("!")  # ends the reasoning


class Reasoner:
    """The part of vLLM's ``ReasoningParser`` that the manager uses."""

    reasoning_end_str = "!"

    def __init__(self, **_: Any) -> None:
        pass

    def is_reasoning_end(self, token_ids: list[int]) -> bool:
        return END in token_ids

    def is_reasoning_end_streaming(self, token_ids: list[int], delta: list[int]) -> bool:
        return END in delta


class Tokenizer:
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(text.encode())


@pytest.fixture
def manager(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DOTLLM_END_IN_REASONING", "allow")
    from vllm.v1.structured_output import StructuredOutputManager

    made = StructuredOutputManager(vllm_config)
    made.reasoner_cls = Reasoner
    made.tokenizer = Tokenizer()
    backend = a_backend(vocabulary=index.vocabulary, compiler=SimpleNamespace(metrics=Metrics()))
    backend.step_masks = RowSender(index.space)
    made.backend = backend
    # As in an engine for 256 requests.
    made._grammar_bitmask = backend.allocate_token_bitmask(1024)
    made.fill_bitmask_parallel_threshold, made.fill_bitmask_parallel_batch_size = 128, 16
    made.executor_for_fillmask = ThreadPoolExecutor(2)
    return made


def request(index: Index, prompt: list[int], said: list[int], ended: bool | None) -> Any:
    grammar = RequestGrammar(index.guide(), (), index.vocabulary)
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
        structured_output_request=structured, prompt_token_ids=prompt, use_structured_output=True, all_token_ids=prompt,
        sampling_params=SimpleNamespace(all_stop_token_ids={EOS, 7, END}), num_tokens=len(prompt), num_output_tokens=0,
        max_tokens=100,
    )  # fmt: skip


def requests(index: Index, copies: int) -> dict[str, Any]:
    kinds = (
        ([1, 2], [], None),  # must reason first
        ([1, END], [], None),  # the prompt ends the reasoning
        ([1, 2], [], False),
        ([1, 2], [ord("{")], True),
        ([1, 2], [*b'{"number_of_items":7,"shipping_address":"","is_gift":true}', EOS], True),  # the answer has ended
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
    manager.backend.step_masks = Bitmasks(index.space)
    assert np.array_equal(manager.grammar_bitmask(asked, list(asked), {}), expected)


def test_rows_along_drafts_are_vllms_bitmasks(manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reasoning ends within drafts, at their end, or not at all; nothing is masked after padding."""
    monkeypatch.setattr(type(manager.vllm_config), "num_speculative_tokens", 4)
    begins = list(b'{"n')
    drafts = {
        "reasons": [1, 2, 3, 4],
        "ends": [1, END, *begins[:2]],
        "ends last": [1, 2, 3, END],
        "ends at once": [END, *begins],
        "padded": [END, begins[0], -1, -1],
        "reasons, padded": [1, -1, -1, -1],
        "answers": begins,
        "none": [],
    }

    def asked() -> dict[str, Any]:
        return {
            name: request(index, [1, 2], [], name == "answers") for name in drafts if name != "none"
        } | {"none": request(index, [1, 2], begins, True)}  # fmt: skip

    original = inspect.unwrap(type(manager).grammar_bitmask)
    expected = original(manager, asked(), list(drafts), drafts).copy()
    found = manager.grammar_bitmask(asked(), list(drafts), drafts)
    assert isinstance(found, MaskRows) and found.counts.tolist() == [1 + len(tokens) for tokens in drafts.values()]
    table = dict(zip(found.new_slots.tolist(), found.new_rows, strict=True))
    slots, at = iter(found.slots.tolist()), 0
    for number, (name, tokens) in enumerate(drafts.items()):
        at = 5 * number if INSTALLED[:2] >= (0, 33) else at  # (since 0.33, each request has a block of rows)
        for position in range(1 + len(tokens)):
            slot, mask = next(slots), expected[at + position]
            assert np.array_equal(np.full_like(mask, -1) if slot == NO_MASK else table[slot], mask), (name, position)
        at += 1 + len(tokens)
    assert found.slots.tolist().count(NO_MASK) == 5 + 2 + 4 + 1 + 3 + 5, "free, and behind padding"
    block = 5 if INSTALLED[:2] >= (0, 33) else 0
    manager.backend.step_masks = Bitmasks(index.space, block)
    filled = manager.grammar_bitmask(asked(), list(drafts), drafts)
    used = positions(found.counts, 5 * np.arange(len(drafts)) if block else np.cumsum(found.counts) - found.counts)
    assert filled.shape == expected.shape and np.array_equal(filled[used], expected[used])


def test_nothing_but_free_requests(manager: Any, index: Index) -> None:
    asked = {"a": request(index, [1], [], None)}
    assert manager.grammar_bitmask(asked, ["a"], {}).slots.tolist() == [NO_MASK]


def test_others_grammars_are_left_to_vllm(manager: Any, index: Index) -> None:
    asked = requests(index, 1)
    names = list(asked)
    sender = manager.backend.step_masks
    assert rows.message_of(manager, sender, list(asked.values()), ()) is not None
    asked[names[3]].structured_output_request.grammar = asked[names[3]].structured_output_request._grammar = object()
    assert rows.message_of(manager, sender, list(asked.values()), ()) is None


def test_tokens_that_would_end_the_reasoning_wrongly_are_masked(
    manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a model reasons, at each of its positions; rows serve for this in any epoch."""
    masked = {"a": (3, 40), "b": (), "c": (3, 40), "d": (3,)}
    asked = {name: request(index, [1, 2], [], False) for name in masked}
    by_request = {id(one): masked[name] for name, one in asked.items()}
    monkeypatch.setattr(rows, "masked_ends", lambda _, one: by_request[id(one)])
    asked["d"].structured_output_request.reasoning_ended = True
    sender, drafts = manager.backend.step_masks, [[1], [], [-1, -1], []]
    for _ in range(4):
        message = rows.message_of(manager, sender, list(asked.values()), drafts)
        assert message is not None and message.counts.tolist() == [2, 1, 3, 1]
        first, second, none, third, *padding, answers = message.slots.tolist()
        bits = index.space.rows[first].view(np.uint32)
        allowed = [token for token in range(len(TOKENS)) if bits[token >> 5] >> (token & 31) & 1]
        assert sorted(set(range(len(TOKENS))) - set(allowed)) == [3, 40]
        assert first == second == third and none == NO_MASK and padding == [NO_MASK, NO_MASK]
        assert answers not in (first, NO_MASK)
        index.space.collect()


def test_what_a_reasoning_must_not_say_is_found_once(
    manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for the same parameters of a request; a session that goes on gets new parameters."""
    monkeypatch.setenv("DOTLLM_END_IN_REASONING", "forbid")
    one, found = request(index, [1, 2], [], False), []
    monkeypatch.setattr(rows, "masked_ends", lambda _, asked: found.append(asked) or (3,))

    def masked() -> list[int]:
        message = rows.message_of(manager, manager.backend.step_masks, [one], ())
        assert message is not None
        return forbidden(index, message.slots[0])

    assert masked() == masked() == [3, 7, EOS] and found == [one]
    one.sampling_params = SimpleNamespace(all_stop_token_ids={EOS, 40, END})
    assert masked() == [3, 40, EOS] and found == [one, one]


def test_an_end_that_belongs_to_the_answer_is_taken_by_the_grammar(manager: Any, index: Index) -> None:
    """For example a tool call's: it is sampled freely, and the grammar begins with it."""
    manager._get_constraint_bounds = lambda one, tokens: (1, 2)
    grammar = request(index, [1], [ord("{")], True).structured_output_request.grammar
    one = request(index, [1], [], False)
    message = rows.message_of(manager, manager.backend.step_masks, [one], [[1, ord("{"), ord('"')]])
    assert message is not None
    behind = rows.rows_of_step([grammar], [[ord('"')]])[1]
    assert message.slots.tolist() == [NO_MASK, NO_MASK, *behind.tolist()]


def forbidden(index: Index, row: int) -> list[int]:
    bits = index.space.rows[row].view(np.uint32)
    return [token for token in range(len(TOKENS)) if not bits[token >> 5] >> (token & 31) & 1]


def test_nothing_ends_the_answer_within_the_reasoning(
    manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception is a token that ends the reasoning and that somebody has named as a stop token."""
    monkeypatch.setenv("DOTLLM_END_IN_REASONING", "forbid")
    asked = [request(index, [1, 2], [], False), request(index, [1, 2], [], True)]
    message = rows.message_of(manager, manager.backend.step_masks, asked, [[1, END, ord("{")], []])
    assert message is not None
    first, second, begins, later, answers = message.slots.tolist()
    assert first == second and forbidden(index, first) == [7, EOS]
    assert begins == answers and later not in (first, begins)
    one = request(index, [1, 2], [], False)
    one.structured_output_request._grammar = SimpleNamespace()  # a grammar that still compiles
    assert manager.grammar_bitmask({"a": one}, ["a"], {}).slots.tolist() == [first]


def limited(manager: Any, index: Index, left: int, more: int = 0, said: tuple[int, ...] = ()) -> Any:
    """A request that reasons and has ``left`` tokens left."""
    one = request(index, [1, 2, *said], [], False)
    one.max_tokens, one.sampling_params.min_tokens = 10**6, 0
    limit = AnswerLimit(manager, one, more)
    limit.begin(one, 10**9, index.tokens_to_finish())
    grammar = one.structured_output_request._grammar
    grammar.limit, grammar.is_plain = limit, False
    one.max_tokens = left
    return one


@pytest.mark.parametrize("more", [0, 5])
def test_the_reasoning_ends_in_time_for_the_answer(
    manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setenv("DOTLLM_END_IN_REASONING", "forbid")
    monkeypatch.setattr(Reasoner, "reasoning_end_str", "=!")
    monkeypatch.setattr(RequestGrammar, "limited", True)
    least = index.tokens_to_finish() + more
    equals = ord("=")

    def allowed(left: int, said: tuple[int, ...] = (), drafts: tuple[int, ...] = ()) -> list[int]:
        one = limited(manager, index, left, more, said)
        message = rows.message_of(manager, manager.backend.step_masks, [one], [list(drafts)] if drafts else ())
        assert message is not None
        closing = one.structured_output_request._grammar.limit.was_needed(0)
        forced = []
        for slot in message.slots.tolist()[: 1 + len(drafts)]:
            out = forbidden(index, slot)
            forced.append(-1 if out == [7, EOS] else (set(range(len(TOKENS))) - set(out)).pop())
            assert len(out) in (2, len(TOKENS) - 1)
        assert closing == any(token >= 0 for token in forced)
        return forced

    assert allowed(least + 3) == [-1]
    assert allowed(least + 2) == [equals]
    assert allowed(least + 2, (equals,)) == [-1]
    assert allowed(least + 1, (equals,)) == [END]
    assert allowed(least + 4, (), (3, 4, 5)) == [-1, -1, equals, equals]
    assert allowed(least + 3, (), (3, equals, 5)) == [-1, equals, END, equals]


def test_a_parser_that_does_not_say_what_ends_a_reasoning(
    manager: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reasoner, "reasoning_end_str", None)
    with pytest.raises(UnsupportedError, match="what ends the reasoning"):
        limited(manager, index, 100)
    manager.reasoner_cls = None
    limited(manager, index, 100)
