"""Finds the masks after a step's tokens while the next step is launched, if the tokens have arrived by then.

vLLM reads the results of a step after it has launched the next one. Where the host, not the device, sets the pace, the
results have arrived by the time the next step has been put together (`index.ahead` says what that is worth). With an
executor in this process, the sampled tokens are then in pinned memory, and an event says whether they are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotllm.device_masks.message import MaskRows
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import AsyncOutput, GrammarOutput

if TYPE_CHECKING:
    from dotllm.arrays import Int64

HOOK = Hook(
    summary="if tokens arrive early, the masks after them are found while the next step is launched",
    targets=[Target("vllm.v1.executor.uniproc_executor", "AsyncOutputFuture.async_output")],
    without_it="new masks are found after the next step has been launched",
)


@HOOK.replaces("vllm.v1.executor.uniproc_executor:UniProcExecutor.sample_tokens")
def _sample_tokens(
    self: object, grammar_output: GrammarOutput | None, non_block: bool = False, *, original: Original
) -> object:
    results: object = original(self, grammar_output, non_block)
    if grammar_output is not None and isinstance(grammar_output.grammar_bitmask, MaskRows):
        grammar_output.grammar_bitmask.results = results
    return results


def early_tokens(results: object) -> tuple[list[str], Int64] | None:
    """The requests of a step, and the token of each, int64 [requests] (-1: it has none); None if they have not arrived.
    results: what the executor returned for it."""
    output: AsyncOutput | None = getattr(results, "async_output", None)
    if output is None or not hasattr(output, "copy_event"):  # (V1's runner has another class)
        return None
    query = getattr(output.copy_event, "query", None)  # (none on a CPU, where nothing is in flight)
    if query is not None and not query():
        return None
    tokens = output.sampled_token_ids
    if tokens.shape[1] != 1:  # drafts
        return None
    counts = output.num_sampled_tokens_np
    return output.model_runner_output.req_ids, np.where(counts == 1, tokens[:, 0], -1).astype(np.int64)
