"""The workers' side: a step says which tokens have been entered into a request, and the model runner stores them.

Both model runners keep a request's tokens themselves, and do not take sampled tokens from the engine core. Entered text
comes with the first step that runs it, as an attribute of vLLM's ``SchedulerOutput``. Before the runner reads the step,
the text is put where the runner keeps the tokens of a prompt. vLLM does the rest.

What the runner has recorded about a result that does not count (see `jump_forward`) is overwritten.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.hook import Hook, Original, Target, replace_once
from dotllm.vllm_plugin.vllm_types import SchedulerOutput

logger = logging.getLogger(__name__)

_BATCH = "vllm.v1.worker.gpu_input_batch"
_TOKENS = ("is_token_ids", "num_tokens_no_spec", "prev_req_id_to_index", "req_id_to_index", "token_ids_cpu")
HOOK = Hook(
    summary="a worker stores the text that the engine core enters into requests",
    targets=(
        Target("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._update_states", ("self", "scheduler_output")),
        *(Target("vllm.v1.worker.gpu_model_runner", f"GPUModelRunner.{name}") for name in ("input_batch", "requests")),
        *(Target(_BATCH, f"CachedRequestState.{name}") for name in ("num_prompt_tokens", "output_token_ids")),
        *(Target(_BATCH, f"InputBatch.{name}") for name in _TOKENS),
        Target("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.add_requests", ("self", "scheduler_output")),
        Target("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.req_states"),
        *(
            Target("vllm.v1.worker.gpu.states", f"RequestState.{name}")
            for name in ("all_token_ids", "num_computed_tokens", "prefill_len", "req_id_to_index", "total_len")
        ),
        Target("vllm.v1.worker.gpu.states", "RequestState.apply_staged_writes", ("self",)),
        Target("vllm.v1.worker.gpu.buffer_utils", "StagedWriteTensor.stage_write", ("self", "index", "start", "x")),
        Target("vllm.v1.worker.gpu.buffer_utils", "StagedWriteTensor.stage_write_elem", ("self", "index", "x")),
        Target("vllm.v1.worker.gpu.buffer_utils", "UvaBackedTensor.np"),
    ),
    without_it="no text may be entered (the engine core checks this hook, too)",
)

ENTERED = "dotllm_entered"
"""The attribute of a scheduler output that holds entered text for the model runners: a list of `Entered`."""


class Entered(NamedTuple):
    """``tokens`` go from position ``start`` to the request's end; its KV cache is valid for ``computed`` tokens."""

    request_id: str
    start: int
    tokens: list[int]
    computed: int


@HOOK.replaces("vllm.v1.worker.worker_base:WorkerWrapperBase.init_device")
def init_device(self: Any, *, original: Original) -> Any:
    """Follow vLLM's ``WorkerWrapperBase.init_device``: make the worker's runner take what is sent."""
    result = original(self)
    try:  # always, since the engine core decides, perhaps on a node with other settings
        wrap_runner(self.worker.model_runner)
    except Exception:
        if settings.value(settings.COALESCENCE) == "canonical":
            raise  # what is sent must not be lost
        logger.warning("forced text cannot be entered on this worker: leave --dotllm-coalescence off", exc_info=True)
    return result


def wrap_runner(runner: Any) -> None:
    """Wrap the method of ``runner``'s class that reads the requests of a step. Idempotent.

    Raises TypeError if the method has another form than expected. Runners of other kinds (pooling, multi-modal
    encoders) run no entered text, and stay as they are.
    """
    if hasattr(runner, "req_states") and hasattr(runner, "add_requests"):
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner as V2Runner

        replace_once(V2Runner, "add_requests", _add_requests)
    elif hasattr(runner, "input_batch") and hasattr(runner, "_update_states"):
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner as V1Runner

        replace_once(V1Runner, "_update_states", _update_states)


def _update_states(self: Any, scheduler_output: SchedulerOutput, *, original: Original) -> Any:
    for entered in getattr(scheduler_output, ENTERED, ()):
        write_v1(self.requests, self.input_batch, entered)
    return original(self, scheduler_output)


def write_v1(requests: dict[str, Any], batch: Any, entered: Entered) -> None:
    """Write entered text into the V1 runner's ``requests`` (``CachedRequestState``) and its ``InputBatch``.

    The list of a request's output tokens stays the same object: logits processors hold it.
    """
    state = requests.get(entered.request_id)
    if state is None:
        return
    state.output_token_ids[entered.start - state.num_prompt_tokens :] = entered.tokens
    row = batch.req_id_to_index.get(entered.request_id)
    if row is None:  # it was not in the previous step: vLLM copies all of its tokens
        return
    end = entered.start + len(entered.tokens)
    batch.token_ids_cpu[row, entered.start : end] = entered.tokens
    batch.is_token_ids[row, entered.start : end] = True
    batch.num_tokens_no_spec[row] = end
    if batch.prev_req_id_to_index:  # asynchronous: its last token is not the one that was sampled last
        batch.prev_req_id_to_index.pop(entered.request_id, None)


def _add_requests(self: Any, scheduler_output: SchedulerOutput, *, original: Original) -> Any:
    entered = getattr(scheduler_output, ENTERED, None)
    if entered is None:
        return original(self, scheduler_output)
    stage_v2(self.req_states, entered)
    result = original(self, scheduler_output)
    if not scheduler_output.scheduled_new_reqs:  # else vLLM has done so, and it must not be done twice in a step,
        self.req_states.apply_staged_writes()  # since there are two buffers and a step may be in flight
    return result


def stage_v2(states: Any, entered: list[Entered]) -> None:
    """Write entered text into the V2 runner's ``RequestState``; its ``apply_staged_writes`` brings it to the device.

    A request that has since been preempted has no state here, and is sent whole when it is resumed.
    """
    for text in entered:
        state = states.req_id_to_index.get(text.request_id)
        if state is None:
            continue
        length = text.start + len(text.tokens)
        states.all_token_ids.stage_write(state, text.start, text.tokens)
        states.prefill_len.np[state] = length
        states.total_len.stage_write_elem(state, length)
        states.num_computed_tokens.stage_write_elem(state, text.computed)
