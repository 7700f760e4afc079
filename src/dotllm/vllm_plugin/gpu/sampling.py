"""The model runner's side of walking: what a `WalkStep` brings is taken in before a step is sampled, and requests whose
place was not known have sampled nothing.

`walk_kernels` writes how many tokens each request has sampled (none in the middle of a prompt, none if it has to repeat
its step) before anything is sampled. vLLM finds that out after sampling, with a kernel of its own whose launch is some
50 µs of the host; in a step that is walked it finds ours (`_wrap_counts`). Should a release of vLLM not ask there, its
own counts are put right instead (`_cross_out`).
"""

from __future__ import annotations

import logging
from typing import Any

from dotllm.vllm_plugin.gpu.walk_message import WalkStep
from dotllm.vllm_plugin.gpu_masks import worker_hooks
from dotllm.vllm_plugin.hook import Target, replace_once, require_parameters

logger = logging.getLogger(__name__)

_RUNNER = "vllm.v1.worker.gpu.model_runner"
_BATCH = "vllm.v1.worker.gpu.input_batch"
_SAMPLE = ("self", "hidden_states", "input_batch", "grammar_output")
_WALKER = "dotllm_walker"  # attribute of a model runner
_COUNT = ("num_sampled", "seq_lens", "cu_num_logits", "idx_mapping", "prefill_len")

TARGETS = (
    Target(_RUNNER, "GPUModelRunner.sample", _SAMPLE),
    Target(_BATCH, "get_num_sampled_and_rejected", _COUNT),  # (the sampler imports it by name)
    *(Target("vllm.v1.worker.gpu.states", f"RequestState.__init__@{name}") for name in ("total_len", "prefill_len")),
    *(
        Target(_BATCH, f"InputBatch.{name}:")
        for name in ("req_ids", "idx_mapping", "seq_lens", "input_ids", "logits_indices")
    ),
)


def fault() -> str:
    """Why the V2 model runner cannot walk; "" if it can (its ``sample`` is wrapped then)."""
    try:
        wrap()
    except Exception as error:  # whatever a foreign version of vLLM makes of it
        return f"the V2 model runner: {type(error).__name__}: {error}"
    return ""


def wrap() -> None:
    """Wrap ``GPUModelRunner.sample``. Idempotent."""
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    replace_once(GPUModelRunner, "sample", _sample_with)
    try:
        _wrap_counts()
    except Exception as error:  # a launch more, then
        logger.info("vLLM counts sampled tokens itself: %s: %s", type(error).__name__, error)


def _sample_with(original: Any) -> Any:
    require_parameters(original, _SAMPLE, no_more=True)

    def sample(self: Any, hidden_states: Any, input_batch: Any, grammar_output: Any) -> Any:
        step = None if grammar_output is None else grammar_output.grammar_bitmask
        if not isinstance(step, WalkStep):
            return original(self, hidden_states, input_batch, grammar_output)
        walker = getattr(self, _WALKER, None)
        if walker is None:
            from dotllm.vllm_plugin.gpu.walker import Walker

            walker = Walker(worker_hooks.table(self.device))
            setattr(self, _WALKER, walker)
        walker.update(step, input_batch.req_ids)
        walker.states, walker.counts = self.req_states, None
        worker_hooks.walking = walker
        try:
            result = original(self, hidden_states, input_batch, grammar_output)
        finally:
            worker_hooks.walking = None
        counts = walker.counts
        # (Without counts there were no masks, and the engine core will not like these tokens.)
        if counts is not None and (result[1] is not counts[0] or result[2] is not counts[1]):
            _cross_out(result[1], result[2], counts[1])
        return result

    return sample


def _cross_out(num_sampled: Any, num_rejected: Any, missed: Any) -> None:
    num_sampled.masked_fill_(missed == 1, 0)
    num_rejected.masked_fill_(missed == 1, 1)


def _wrap_counts() -> None:
    from vllm.v1.worker.gpu.sample import sampler

    replace_once(sampler, "get_num_sampled_and_rejected", _counts_with)


def _counts_with(original: Any) -> Any:
    require_parameters(original, _COUNT, no_more=True)

    def get_num_sampled_and_rejected(num_sampled: Any, *arguments: Any, **named: Any) -> Any:
        walker = worker_hooks.walking
        if walker is None or walker.counts is None:
            return original(num_sampled, *arguments, **named)
        return walker.counts

    return get_num_sampled_and_rejected
