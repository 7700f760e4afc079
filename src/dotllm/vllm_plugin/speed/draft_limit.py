"""Drops drafts of constrained requests that would make a step larger than vLLM's largest CUDA graph.

A user's own speculative method (ngram, suffix, …) also drafts for constrained requests, and for nearly all of them,
because JSON repeats itself. vLLM has CUDA graphs for steps of up to `max_cudagraph_capture_size` tokens. 256 requests
with three drafts each need twice as many tokens, and their step, without a graph, takes more than twice as long (see
docs/decisions/drafts.md). So where 1 + K tokens for every running request are more than the largest graph holds, drafts
of constrained requests are not scheduled. Which drafts are verified changes nothing but the number of steps.

If the user has set ``num_speculative_tokens_per_batch_size``, this hook does nothing. Drafts of unconstrained requests
are left to vLLM, and so are all drafts with asynchronous scheduling, where they never leave the device.
"""

from __future__ import annotations

import logging

from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.scheduler import DRAFTS, Part, takes_part
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.vllm_types import DraftTokenIds, Scheduler

logger = logging.getLogger(__name__)


class DraftLimit(Part):
    """Drops drafts before `batch_accept` validates them."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._most = most_drafting(scheduler)
        if self._most is not None:
            logger.info("drafts of constrained requests are verified in batches of at most %d requests", self._most)

    def drafts_came(self, drafts: DraftTokenIds) -> None:
        """Drop the drafts of constrained requests in a batch that is too large."""
        if self._most is None or len(self.scheduler.running) <= self._most:
            return
        dropped = 0.0
        for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            request = self.scheduler.requests.get(name)
            if request is not None and request.use_structured_output:
                dropped += len(tokens)
                tokens.clear()
        backend = backend_of(self.scheduler.structured_output_manager)
        if backend is not None and dropped:
            backend.compiler.metrics.add("dotllm_drafts_dropped", amount=dropped)


def most_drafting(scheduler: Scheduler) -> int | None:
    """The most running requests with which drafts of constrained requests are verified; None: any number."""
    config = scheduler.vllm_config
    largest, speculation = config.compilation_config.max_cudagraph_capture_size, config.speculative_config
    if speculation is None or not largest or config.scheduler_config.async_scheduling:
        return None
    return None if speculation.num_speculative_tokens_per_batch_size else largest // (1 + scheduler.num_spec_tokens)


HOOK = Hook(
    summary="drafts of constrained requests do not make a step larger than vLLM's largest CUDA graph",
    apply=takes_part(DRAFTS, DraftLimit),
    without_it="with speculation, large batches of constrained requests may be slower than without it",
)
