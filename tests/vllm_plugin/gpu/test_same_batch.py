"""Steps of the same requests share what was found out about them."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

from played_engine import ANSWER, Engine

from dotllm import Index
from dotllm.vllm_plugin.gpu.follow import TableBatch
from dotllm.vllm_plugin.gpu.walk_scheduler import WalkScheduler

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("blocks", [200, 14])
def test_who_samples_and_where_is_found_anew_when_it_changes(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, jumps: bool, blocks: int
) -> None:
    engine = Engine(vllm_config, index, monkeypatch, jumps=jumps, seed=5, blocks=blocks)
    found, same = WalkScheduler._batch_of, 0

    def checked(self: Any, walk: Any, output: Any) -> Any:
        nonlocal same
        last = self._batch
        batch = found(self, walk, output)
        same += batch is last
        # (a step that waits for the tokens of the last one may have lost somebody by now)
        requests = [self.requests[name] for name in output.num_scheduled_tokens if name in self.requests]
        expected = [r.request_id for r in requests if r.use_structured_output and not r.is_prefill_chunk]
        assert batch.ids == expected and batch.slots.tolist() == [walk.slot_of[name] for name in expected]
        return batch

    monkeypatch.setattr(WalkScheduler, "_batch_of", checked)
    engine.add("early", 20)
    engine.add("free", 10, structured_outputs=None, max_tokens=60)
    arrivals = {8: lambda: engine.add("long", 90), 30: lambda: engine.add("late", 30)}
    engine.run(arrivals)
    for name in ("early", "long", "late"):
        assert ANSWER.fullmatch(engine.text(name)), name
        engine.check(name)
    assert jumps or (engine.preemptions > 0) == (blocks == 14)  # (entered text ends before there are too few)
    assert same > 4


def test_every_slot_has_its_token(index: Index) -> None:
    """Memory beyond a list that is too short is not read."""
    batch = TableBatch(index.space, 4, 8)
    with pytest.raises(ValueError, match="1 tokens for 2 slots"):
        batch.follow_tables(np.array([0, 1], np.int32), np.zeros(2, np.int32), array("i", [5]), 1)
