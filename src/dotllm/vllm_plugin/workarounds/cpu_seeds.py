"""A request with a seed must not end a CPU server while its prompt is processed in pieces.

When a step runs only a part of a request's prompt, the token it samples is discarded, and vLLM rewinds the request's
random generator by one draw (``v1/worker/gpu_model_runner.py``, ``_bookkeeping_sync``). It calls ``set_offset``, which
CPU generators do not have, so the worker raises and the whole engine dies. (Any long prompt with a seed does this.)
Here we hide these generators while vLLM looks for them. If the request has produced no token yet, every draw so far was
discarded, and the generator starts again from its seed: the answer does not depend on how the prompt was cut.

vLLM 0.32 and 0.33. To be deleted when CPU generators have offsets in torch, or vLLM does not ask for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.workarounds import on_cpu

if TYPE_CHECKING:
    import torch

_WORKER = "vllm.v1.worker"
HOOK = Hook(
    name="cpu-seeds",
    summary="on a CPU, a seeded request whose prompt is processed in pieces does not end the server",
    targets=(
        *(Target(f"{_WORKER}.gpu_model_runner", f"GPUModelRunner.{name}") for name in ("input_batch", "requests")),
        Target(f"{_WORKER}.gpu_model_runner", "GPUModelRunner.discard_request_mask"),
        *(Target(f"{_WORKER}.gpu_input_batch", f"InputBatch.{name}") for name in ("generators", "num_reqs", "req_ids")),
    ),
    where=on_cpu,
    without_it="on a CPU, a request with a seed and a long prompt ends the server",
)


def hide(runner: Any) -> dict[int, torch.Generator]:
    """Take the generators of requests whose token is discarded out of the batch. Returns them by index in the batch."""
    count = runner.input_batch.num_reqs
    generators = runner.input_batch.generators
    discarded = np.nonzero(runner.discard_request_mask.np[:count])[0].tolist()
    return {index: generators.pop(index) for index in discarded if index in generators}


def restore(runner: Any, hidden: dict[int, torch.Generator]) -> None:
    """Put them back, restarted if no draw counts."""
    for index, generator in hidden.items():
        if not runner.requests[runner.input_batch.req_ids[index]].output_token_ids:
            generator.manual_seed(generator.initial_seed())
        runner.input_batch.generators[index] = generator


@HOOK.replaces("vllm.v1.worker.gpu_model_runner:GPUModelRunner._bookkeeping_sync")
def _bookkeeping_sync(self: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    hidden = hide(self)
    try:
        return original(self, *args, **kwargs)
    finally:
        restore(self, hidden)
