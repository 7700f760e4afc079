"""Masses on their way from the workers' rows to a front end's positions, with vLLM's own classes and no device."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("vllm")

import torch
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import AsyncModelRunnerOutput, LogprobsLists, ModelRunnerOutput
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from dotllm.vllm_plugin.extra.mass import answers, engine, wire, worker

pytestmark = pytest.mark.serve

TOKENS = 64


def masked(logits: Any, allowed: Any) -> None:
    logits[~allowed] = -float("inf")


def exact(logits: Any, allowed: Any) -> Any:
    return (logits.double().softmax(1) * allowed).sum(1).log()


class _Later(AsyncModelRunnerOutput):
    def __init__(self, output: Any) -> None:
        self.output, self.was_read = output, False

    def get_output(self) -> Any:
        self.was_read = True
        return self.output

    def get_kv_connector_output(self) -> Any:
        return "of the connector"


def sampled(asked: dict[str, int] | None, apply: Any, output: Any) -> Any:
    """What a worker returns if its runner masks with ``apply``."""
    grammar = SimpleNamespace()
    if asked is not None:
        counts = None if set(asked.values()) == {1} else np.array([*asked.values()], np.int32)
        setattr(grammar, worker.ASKED, ([*asked], counts))

    def original(self: object, given: Any) -> Any:
        assert given is grammar
        apply()
        return output

    return worker._sample_tokens(None, grammar, original=original)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows_of_the_first_runner(asynchronous: bool) -> None:
    """Drafts, requests that do not ask, a request that has left the batch, and one with trimmed drafts."""
    torch.manual_seed(0)
    logits, allowed = torch.randn((7, TOKENS)), torch.rand((7, TOKENS)) < 0.5
    expected = exact(logits, allowed)
    step: Any = SimpleNamespace(scheduled_spec_decode_tokens={"a": [7, 7], "x": [7], "t": []})
    batch: Any = SimpleNamespace(req_ids=["x", "a", "t", "b"])
    original = lambda *_: masked(logits, allowed)  # noqa: E731
    apply = partial(worker._v1, step, SimpleNamespace(), batch, logits, original=original)
    output = ModelRunnerOutput(req_ids=["x", "a", "t", "b"], req_id_to_index={})
    result = sampled({"a": 3, "gone": 1, "b": 1, "t": 3}, apply, _Later(output) if asynchronous else output)
    if asynchronous:
        assert not result._output.was_read and result.get_kv_connector_output() == "of the connector"
        result = result.get_output()
    found = getattr(result, worker.MASSES)
    assert {name: len(masses) for name, masses in found.items()} == {"a": 3, "b": 1, "t": 3, "gone": 1}
    close = partial(pytest.approx, abs=1e-6)
    assert found["a"] == close(expected[2:5].tolist()) and found["b"] == close(expected[6:].tolist())
    assert found["t"][:1] == close(expected[5:6].tolist()), "it has one row, whatever was drafted"


def test_rows_of_a_batch_in_which_all_ask() -> None:
    """Each has one position; the runners' order, and another."""
    logits, allowed = torch.randn((3, TOKENS)), torch.rand((3, TOKENS)) < 0.5
    expected = exact(logits, allowed).tolist()
    original = lambda *_: masked(logits, allowed)  # noqa: E731
    step: Any = SimpleNamespace(scheduled_spec_decode_tokens={})
    for names in (["x", "a", "t"], ["t", "x"]):
        for second in (False, True):
            before = logits.clone()
            batch: Any = SimpleNamespace(req_ids=["x", "a", "t"], cu_num_logits=torch.arange(4, dtype=torch.int32))
            own: Any = SimpleNamespace(mask_stride=1)
            first = partial(worker._v1, step, SimpleNamespace(), batch, logits, original=original)
            last = partial(worker._v2, own, logits, batch, names, None, original=original)
            output = ModelRunnerOutput(req_ids=[], req_id_to_index={})
            found = getattr(sampled(dict.fromkeys(names, 1), last if second else first, output), worker.MASSES)
            assert found == pytest.approx({name: expected["xat".index(name)] for name in names}, abs=1e-6)
            logits.copy_(before)


def test_rows_of_the_second_runner() -> None:
    torch.manual_seed(1)
    logits, allowed = torch.randn((6, TOKENS)), torch.rand((6, TOKENS)) < 0.5
    expected = exact(logits, allowed)
    batch: Any = SimpleNamespace(req_ids=["x", "a", "b"], cu_num_logits=torch.tensor([0, 2, 5, 6], dtype=torch.int32))
    own: Any = SimpleNamespace(mask_stride=3)
    original = lambda *_: masked(logits, allowed)  # noqa: E731
    apply = partial(worker._v2, own, logits, batch, ["a", "b"], None, original=original)
    found = getattr(sampled({"b": 3, "a": 3}, apply, ModelRunnerOutput(req_ids=[], req_id_to_index={})), worker.MASSES)
    assert found["a"] == pytest.approx(expected[2:5].tolist(), abs=1e-6)
    assert found["b"][:1] == pytest.approx(expected[5:].tolist(), abs=1e-6), "it has one row, whatever was drafted"


def test_a_step_in_which_nobody_asks_is_vllms() -> None:
    logits = torch.randn((2, TOKENS))
    calls: list[str] = []
    for apply in (
        partial(worker._v1, None, None, None, logits, original=lambda *_: calls.append("V1")),
        partial(worker._v2, None, logits, None, [], None, original=lambda *_: calls.append("V2")),
    ):
        output = ModelRunnerOutput(req_ids=[], req_id_to_index={})
        assert sampled(None, apply, output) is output and not hasattr(output, worker.MASSES)
    assert calls == ["V1", "V2"]


def test_a_failure_is_logged_and_nothing_else_happens(caplog: pytest.LogCaptureFixture) -> None:
    batch: Any = SimpleNamespace(req_ids=["a"])
    step: Any = SimpleNamespace(scheduled_spec_decode_tokens={})
    apply = partial(worker._v1, step, None, batch, object(), original=lambda *_: None)
    output = ModelRunnerOutput(req_ids=["a"], req_id_to_index={})
    assert sampled({"a": 1}, apply, output) is output and not hasattr(output, worker.MASSES)
    assert "could not measure" in caplog.text


def new(name: str, **fields: Any) -> Any:
    params = SimpleNamespace(extra_args=fields or None)
    return SimpleNamespace(req_id=name, sampling_params=params)


def test_the_engine_core_asks_for_those_that_ask() -> None:
    part = engine.Masses(SimpleNamespace())  # type: ignore[arg-type]
    step: Any = SimpleNamespace(
        scheduled_new_reqs=[new("a", dotllm_mass=True), new("b"), new("c", dotllm_mass="false"), new("p")],
        scheduled_spec_decode_tokens={"a": [1, 2]},
    )
    step.scheduled_new_reqs[-1].sampling_params = None  # a pooling request
    part.scheduled(step)
    masks: Any = SimpleNamespace(structured_output_request_ids=["b", "a", "c"])
    part.masks_found(step, masks)
    names, counts = getattr(masks, worker.ASKED)
    assert names == ["a"] and counts.tolist() == [3]
    step.scheduled_spec_decode_tokens = {}
    part.masks_found(step, masks)
    assert getattr(masks, worker.ASKED) == (["a"], None)
    part.masks_found(step, None)
    other: Any = SimpleNamespace(structured_output_request_ids=["b"])
    part.masks_found(step, other)
    assert not hasattr(other, worker.ASKED), "the worker's step is vLLM's"
    part.ended(SimpleNamespace(request_id="a"))  # type: ignore[arg-type]
    again: Any = SimpleNamespace(structured_output_request_ids=["a"])
    part.masks_found(step, again)
    assert not hasattr(again, worker.ASKED)


def lists(rows: int, width: int) -> Any:
    ids = np.arange(rows * width, dtype=np.int32).reshape(rows, width)
    return LogprobsLists(ids, -ids.astype(np.float32), np.ones(rows, np.int32))


def output_processor() -> Any:
    """vLLM's, with the front end's hook."""
    from vllm.v1.engine.output_processor import OutputProcessor

    processor = OutputProcessor(None, log_stats=False)

    def process(outputs: list[Any]) -> Any:
        return answers._process_outputs(processor, outputs, original=OutputProcessor.process_outputs)

    return processor, process


def add(processor: Any, name: str, logprobs: int | None, asks: bool) -> Any:
    """vLLM's state of a new request, and a list of its positions of log probabilities once it has ended."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.logprobs import LogprobsProcessor

    params = SamplingParams(
        logprobs=logprobs, output_kind=RequestOutputKind.DELTA, extra_args={"dotllm_mass": True} if asks else None
    )
    request = EngineCoreRequest(name, [1], None, params, None, 0.0, None, None, None, external_req_id=name)
    processor.add_request(request, None)
    state = processor.request_states[name]
    original = LogprobsProcessor.from_new_request.__func__
    state.logprobs_processor = answers._from_new_request(LogprobsProcessor, None, request, original=original)
    return state


def test_masses_go_through_vllms_wire_to_the_positions_of_a_request() -> None:
    part = engine.Masses(SimpleNamespace())  # type: ignore[arg-type]
    outputs = {
        0: EngineCoreOutputs(
            outputs=[EngineCoreOutput("a", [0, 3], new_logprobs=lists(2, 3)), EngineCoreOutput("p", [7, 8]),
                     EngineCoreOutput("b", [0], new_logprobs=lists(1, 3)), EngineCoreOutput("c", [5])]
        ),
        1: EngineCoreOutputs(outputs=[EngineCoreOutput("d", [4])]),
        2: EngineCoreOutputs(outputs=[EngineCoreOutput("e", [4])]),
    }  # fmt: skip
    result = ModelRunnerOutput(req_ids=[], req_id_to_index={})
    part.answered(result, outputs)
    assert [one.request_id for one in outputs[0].outputs] == ["a", "p", "b", "c"]
    masses = {"a": [-0.25, -1.5, -9.0], "p": [-2.0], "d": -1.0, "gone": [-3.0]}
    setattr(result, worker.MASSES, masses)
    part.answered(result, outputs)
    sent = [MsgpackDecoder(EngineCoreOutputs).decode(MsgpackEncoder().encode(one)).outputs for one in outputs.values()]
    assert [dict(wire.carried(one)) for one in sent] == [{name: masses[name] for name in "ap"}, {"d": -1.0}, {}]

    processor, process = output_processor()
    asks = {"a": (2, True), "p": (None, True), "b": (2, False), "c": (None, False)}
    states = {name: add(processor, name, *how) for name, how in asks.items()}
    told = {output.request_id: output.outputs[0] for output in process(sent[0]).request_outputs}
    assert told.keys() == states.keys() and wire.CARRIER not in processor.request_states
    assert [one.log_mass for one in told["a"].logprobs] == [-0.25, -1.5], "of each accepted position, and of no other"
    assert [list(one) for one in told["a"].logprobs] == [[0, 1, 2], [3, 4, 5]], "vLLM's positions are as they were"
    assert [(one.log_mass, len(one)) for one in told["p"].logprobs] == [(-2.0, 0), (None, 0)], "no log probabilities"
    assert type(told["b"].logprobs[0]) is dict and told["c"].logprobs is None, "who does not ask gets vLLM's"
    process([EngineCoreOutput("p", [9])])
    process([wire.carrier({"p": -4.0, "gone": [-3.0]}), EngineCoreOutput("p", [10])])
    own = states["p"].logprobs_processor
    assert [one.log_mass for one in own.logprobs] == [-2.0, None, None, -4.0] and own.masses == [-4.0]
    assert own.cumulative_logprob is None and states["a"].logprobs_processor.cumulative_logprob == -3


def test_a_mass_without_an_output_is_not_kept_for_the_next() -> None:
    """The result of a step may be dropped, and the next step of its request may have no mask."""
    part = engine.Masses(SimpleNamespace())  # type: ignore[arg-type]
    outputs = {0: EngineCoreOutputs(outputs=[EngineCoreOutput("d", [4])])}
    result = ModelRunnerOutput(req_ids=[], req_id_to_index={})
    setattr(result, worker.MASSES, {"d": -1.0, "dropped": -2.0})
    part.answered(result, outputs)
    assert wire.carried(outputs[0].outputs) == {"d": -1.0}
    processor, process = output_processor()
    add(processor, "d", None, asks=True)
    assert [one.log_mass for one in process(outputs[0].outputs).request_outputs[0].outputs[0].logprobs] == [-1.0]


def test_a_stop_text_within_a_step_drops_masses_too() -> None:
    processor, process = output_processor()
    state = add(processor, "a", 0, asks=True)
    process([wire.carrier({"a": [-1.0, -2.0, -3.0]}), EngineCoreOutput("a", [3], new_logprobs=lists(1, 1))])
    assert [one.log_mass for one in state.logprobs_processor.logprobs] == [-1.0]


def test_flat_log_probabilities_stay_vllms() -> None:
    from vllm.logprobs import FlatLogprobs

    processor, process = output_processor()
    state = add(processor, "a", 0, asks=True)
    state.logprobs_processor.logprobs = FlatLogprobs()
    process([wire.carrier({"a": [-1.0]}), EngineCoreOutput("a", [3], new_logprobs=lists(1, 1))])
    assert type(state.logprobs_processor.logprobs) is FlatLogprobs and state.logprobs_processor.masses == [-1.0]
