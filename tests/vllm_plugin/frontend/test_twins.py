"""Requests without a constraint get plain vLLM's answers: its recorded answers are compared with ours.

`make twin-tests` compares servers, and every kind of model (docs/testing.md).
"""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("vllm")

from tests.twins import front_end, listed
from tests.vllm_plugin.played_server import PlayedServer

pytestmark = pytest.mark.skipif(not front_end.record().exists(), reason="no record of this release of vLLM")


def test_every_request_is_answered_as_by_plain_vllm(played: PlayedServer) -> None:
    corpus, rows = front_end.recorded()
    if corpus != front_end.corpus():
        pytest.skip("plain vLLM's answers were recorded with another patch release of Python, and so other tokens")
    differing, statuses = [], Counter[int]()
    for case, plain in rows:
        ours = front_end.ask(played, case)
        statuses[ours["status"]] += 1
        what = front_end.difference(plain, ours)
        if what and listed.reason_of("front end", case["name"], what) is None:
            differing.append(f"{case['name']}: {what}")
    assert not differing, "\n".join(differing)
    assert statuses[200] > 60 and statuses[400] > 100, statuses
