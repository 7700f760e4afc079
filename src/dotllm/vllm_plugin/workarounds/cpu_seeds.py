"""A request with a seed must not end a CPU server while its prompt is processed in pieces.

When a step runs only a part of a request's prompt, the token it samples is discarded, and vLLM rewinds the request's
random generator by one draw (``v1/worker/gpu_model_runner.py``, ``_bookkeeping_sync``). It calls ``set_offset``, which
CPU generators do not have, so the worker raises and the whole engine dies. (Any long prompt with a seed does this.)
Here we hide these generators while vLLM looks for them. If the request has produced no token yet, every draw so far was
discarded, and the generator starts again from its seed: the answer does not depend on how the prompt was cut.

vLLM 0.32 and 0.33. To be deleted when CPU generators have offsets in torch, or vLLM does not ask for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.workarounds import on_cpu

_RUNNER, _BATCH = "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu_input_batch"
HOOK = Hook(
    summary="on a CPU, a seeded request whose prompt is processed in pieces does not end the server",
    targets=(
        *(Target(_RUNNER, f"GPUModelRunner.{name}") for name in ("discard_request_mask", "input_batch", "requests")),
        *(Target(_BATCH, f"InputBatch.{name}") for name in ("generators", "num_reqs", "req_ids")),
    ),
    where=on_cpu,
    without_it="on a CPU, a request with a seed and a long prompt ends the server",
)


def hide(runner: Any) -> dict[int, Any]:
    """Take the generators of requests whose token is discarded out of the batch. Returns them by index in the batch."""
    batch = runner.input_batch
    discarded = np.nonzero(runner.discard_request_mask.np[: batch.num_reqs])[0].tolist()
    return {index: batch.generators.pop(index) for index in discarded if index in batch.generators}


def restore(runner: Any, hidden: dict[int, Any]) -> None:
    """Put them back, restarted if no draw counts."""
    for index, generator in hidden.items():
        if not runner.requests[runner.input_batch.req_ids[index]].output_token_ids:
            generator.manual_seed(generator.initial_seed())
        runner.input_batch.generators[index] = generator


@HOOK.replaces(f"{_RUNNER}:GPUModelRunner._bookkeeping_sync")
def _bookkeeping_sync(self: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    hidden = hide(self)
    try:
        return original(self, *args, **kwargs)
    finally:
        restore(self, hidden)
