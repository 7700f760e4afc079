"""Drafts of forced text: how many, beside whose, and what is reported of them. (Live: tests/serve/test_coalescence.py.)"""

from __future__ import annotations

import pytest

from dotllm.vllm_plugin.jump_forward.coalescence import Drafting, together


@pytest.mark.parametrize(
    ("forced", "own", "drafts", "ours"),
    [
        ([1, 2, 3], [], [1, 2, 3], 3),
        ([1, 2, 3], [1, 2], [1, 2, 3], 3),
        ([1, 2], [1, 2, 7, 8], [1, 2, 7, 8], 2),  # forced tokens first, then theirs
        ([1, 2], [1, 9, 7, 8], [1, 2], 2),  # theirs does not fit the grammar, or spells it otherwise
        ([1, 2], [1, 2, 7, 8, 9], [1, 2, 7, 8], 2),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4], 4),  # no more than vLLM has room for
    ],
)
def test_forced_tokens_come_first(forced: list[int], own: list[int], drafts: list[int], ours: int) -> None:
    assert together(forced, own, 4) == (drafts, ours)


def test_fewer_drafts_where_they_are_rejected() -> None:
    drafting = Drafting(8)
    limits = []
    for accepted in (8, 3, 0, 1, 2, 4):  # of what is given
        drafting.given = min(drafting.limit, 8)
        limits.append(drafting.next_limit(tokens_now=accepted + 1, most=8))
    assert limits == [8, 3, 1, 2, 4, 8]
