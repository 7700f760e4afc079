"""Tokens that have arrived early are read once, and only where they can be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dotllm.device_masks.message import MaskRows
from dotllm.vllm_plugin.speed import look_ahead
from tests.vllm_plugin.early_results import async_output

NONE = np.zeros(0, np.int32)


def results(sampled: list[list[int]], *, arrived: bool = True) -> Any:
    names = [str(i) for i in range(len(sampled))]
    return SimpleNamespace(async_output=async_output(names, sampled, lambda: arrived))


def drafts() -> Any:
    found = results([[5]])
    found.async_output.sampled_token_ids = np.array([[5, 6]])
    return found


def test_tokens_of_requests_that_have_one() -> None:
    """A prompt that is not complete yet has no token."""
    names, tokens = look_ahead.early_tokens(results([[5], [], [7]])) or ([], NONE)
    assert names == ["0", "1", "2"] and tokens.tolist() == [5, -1, 7] and tokens.dtype == np.int64


def test_nothing_is_in_flight_on_a_cpu() -> None:
    """vLLM's events are placeholders there."""
    found = results([[5], [6]])
    found.async_output.copy_event = SimpleNamespace()
    assert (look_ahead.early_tokens(found) or ([], NONE))[1].tolist() == [5, 6]


@pytest.mark.parametrize(
    "later",
    [
        results([[5]], arrived=False),
        drafts(),
        SimpleNamespace(),  # an executor whose workers are elsewhere
        SimpleNamespace(async_output=SimpleNamespace()),  # V1's runner
        None,
    ],
)
def test_tokens_that_are_read_later(later: Any) -> None:
    assert look_ahead.early_tokens(later) is None


def test_the_executor_says_where_the_results_will_be() -> None:
    masks = MaskRows(1, None, NONE, NONE, NONE, np.zeros((0, 2), np.int32))
    future = object()
    given = SimpleNamespace(grammar_bitmask=masks)
    assert look_ahead._sample_tokens(object(), given, True, original=lambda *_: future) is future
    assert masks.results is future
    for other in (None, SimpleNamespace(grammar_bitmask=np.zeros((1, 2), np.int32))):
        assert look_ahead._sample_tokens(object(), other, True, original=lambda *_: future) is future  # type: ignore[arg-type]
