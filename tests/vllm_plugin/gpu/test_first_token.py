"""First tokens leave before the next launch: vLLM's own loop, with the model runner played by `played_engine`."""

from __future__ import annotations

import queue
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

from played_engine import ANSWER, Engine

from dotllm import Index
from dotllm.vllm_plugin.gpu import first_token

pytestmark = pytest.mark.serve


class Core:
    """vLLM's ``EngineCore`` around the scheduler and the runner of an `Engine`; ``events``: in which order it did what."""

    def __init__(self, engine: Engine, device_time: float = 0.0) -> None:
        from vllm.v1.engine.core import EngineCore

        self.engine, self.device_time = engine, device_time
        self.events: list[str] = []
        self.core: Any = EngineCore.__new__(EngineCore)
        self.core.scheduler = engine.scheduler
        self.core.vllm_config = engine.scheduler.vllm_config
        self.core.batch_queue, self.core.batch_queue_size = deque(), 2
        self.core.model_executor = self
        self.core.is_pooling_model = self.core.is_mm_encoder_only = self.core.check_for_draft_tokens = False
        self.core.is_ec_consumer = True
        self.core.log_stats, self.core.aborts_queue, self.core._weight_version = False, queue.SimpleQueue(), None

    def execute_model(self, output: Any, non_block: bool) -> Future[Any]:
        """vLLM's executor: launches a step."""
        future: Future[Any] = Future()
        if output.total_num_scheduled_tokens:
            self.engine.runner.execute(output)
            future.set_result(None)
            self.events.append("launch")
        else:
            future.set_result(self.result([], []))
        return future

    def sample_tokens(self, grammar_output: Any, non_block: bool) -> Future[Any]:
        """vLLM's executor: the tokens of the step that was launched, when somebody asks for them."""
        names, sampled = list(self.engine.runner.names), self.engine.runner.sample(grammar_output)
        return Later(self, names, sampled)

    @staticmethod
    def result(names: list[str], sampled: list[list[int]]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        index = {name: i for i, name in enumerate(names)}
        return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=sampled)

    def step(self) -> bool:
        """Once round vLLM's loop; whether it would go on at once."""
        outputs, executed = self.core.step_with_batch_queue()
        for some in (outputs or {}).values():
            for one in some.outputs:
                self.engine.answers[one.request_id] += one.new_token_ids
                self.events.append("token" if one.new_token_ids else "end")
                if one.finish_reason is not None:
                    self.engine.reasons[one.request_id] = str(one.finish_reason)
        return bool(executed)

    def run(self) -> None:
        for _ in range(3000):
            if not (self.engine.scheduler.has_requests() or self.core.batch_queue):
                return
            self.step()
        raise AssertionError("requests do not end")


class Later(Future[Any]):
    """A result that the device has ``device_time`` after it is asked for, as vLLM's executor of one process has it."""

    def __init__(self, core: Core, names: list[str], sampled: list[list[int]]) -> None:
        super().__init__()
        self.core, self.names, self.sampled = core, names, sampled

    def result(self, timeout: float | None = None) -> Any:
        time.sleep(self.core.device_time)
        return self.core.result(self.names, self.sampled)


def an_engine(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(vllm_config, index, monkeypatch, jumps=False, seed=6, blocks=200)


def test_the_token_leaves_before_the_next_launch(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = an_engine(vllm_config, index, monkeypatch)
    engine.add("alone", 20)
    core = Core(engine)
    assert core.step() and core.events == ["launch"]
    assert core.step() and core.events == ["launch", "token"], "without a rest behind it"
    assert engine.scheduler.has_requests()
    core.run()
    assert core.events[2:4] == ["launch", "launch"], "the overlap begins with the second token"
    assert ANSWER.fullmatch(engine.text("alone"))
    engine.check("alone")


@pytest.mark.parametrize("other", ["generating", "waiting", "free", "cut"])
def test_nobody_else_waits_for_it(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    engine = an_engine(vllm_config, index, monkeypatch)
    core = Core(engine)
    if other == "generating":
        engine.add("before", 8)
        for _ in range(4):
            core.step()
    engine.add("new", 80 if other == "cut" else 20)  # (64 tokens a step)
    if other == "free":
        engine.add("free", 8, structured_outputs=None, max_tokens=8)
    core.step()
    if other == "waiting":
        engine.add("behind", 8)
    core.events.clear()
    core.step()
    assert core.events[0] == "launch"
    core.run()
    for name in engine.requests:
        assert name == "free" or ANSWER.fullmatch(engine.text(name)), name


def test_prompts_that_keep_the_device_busy_are_not_waited_for(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = an_engine(vllm_config, index, monkeypatch)
    core = Core(engine, device_time=4 * first_token.LAUNCH_S)
    early, late = ["launch", "token"], ["launch", "launch"]
    prompts = [(40, early), (40, early), (40, late), (50, late), (20, early)]
    for number, (prompt, events) in enumerate(prompts):
        engine.add(str(number), prompt, first=100 * number, max_tokens=4)
        core.events.clear()
        core.step(), core.step()
        assert core.events[:2] == events, number
        core.run()


def test_patience_is_lost_by_two_long_waits_in_a_row_and_comes_back() -> None:
    patience, long = first_token.Patience(), 2 * first_token.LAUNCH_S
    for seconds in (long, 0.0, long, 0.0):
        patience.waited(100, seconds)
        assert patience.suffices(10_000)
    patience.waited(300, long), patience.waited(200, long)
    assert patience.suffices(199)
    refused = 0
    while not patience.suffices(200):
        refused += 1
    assert refused == first_token.TRIED_AGAIN
    patience.waited(200, long)
    assert not patience.suffices(200), "once is enough then"


def test_data_parallel_ranks_count_their_steps(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_config.parallel_config, "data_parallel_size", 2)
    engine = an_engine(vllm_config, index, monkeypatch)
    engine.add("alone", 20)
    core = Core(engine)
    core.step(), core.step()
    assert core.events[:2] == ["launch", "launch"]
    core.run()
