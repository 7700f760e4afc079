"""A real server whose answers end within max_tokens, from the fewest tokens upwards: speculation or coalescence,
reasoning, tools, streams, several answers. ``DOTLLM_ENDING_REQUESTS`` sets the number of requests.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.serve import api_model, ending_load
from tests.serve.conftest import API_FLAGS, NAME
from tests.serve.raw import metrics, total, until
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

COUNT = int(os.environ.get("DOTLLM_ENDING_REQUESTS", "40"))


@pytest.mark.parametrize("mode", ending_load.FLAGS)
def test_every_answer_is_whole(mode: str, demo_model: Path, tmp_path: Path) -> None:
    model = api_model.make(tmp_path / "model", demo_model)
    flags, environment = (*API_FLAGS, *ending_load.FLAGS[mode]), {"DOTLLM_DISK_BYTES": "0"}
    with Server(model, tmp_path / "log", name=NAME, flags=flags, environment=environment) as server:
        server.wait()
        ended, cut = asyncio.run(ending_load.measure(server.url, COUNT))
        # (Requests with the minimum are also answered if the minimum is one token.)
        most = ended.closed + 2 * len(ending_load.KINDS)
        until(lambda: ended.closed <= total(metrics(server), "dotllm_answers_closed_total") <= most)
    assert not ended.failed and not ended.invalid and ended.answers >= COUNT
    assert set(ended.finished) <= {"stop", "tool_calls"}
    assert ended.closed > COUNT / 2
    assert cut.finished["length"] > COUNT / 2 and cut.invalid and not cut.closed
