"""On CPUs vLLM dies of a step without drafts in which somebody asks for ``top_k`` or ``top_p``: a fix, for CPUs alone.

Where a server speculates, vLLM sends every step through its rejection sampler (``v1/sample/rejection_sampler.py``,
``apply_sampling_constraints``), drafts or none, and without Triton ``top_k`` is applied to the logits of the drafts by
a maximum over all of them, which no rows do not have.

vLLM 0.32 and 0.33. To be deleted when it takes logits of no rows.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.workarounds import on_cpu

HOOK = Hook(
    name="cpu-no-drafts",
    summary="on CPUs, steps without drafts may have requests with top_k or top_p",
    where=on_cpu,
    without_it="on CPUs with speculation, top_k or top_p may end the server",
)


@HOOK.replaces("vllm.v1.sample.rejection_sampler:apply_sampling_constraints")
def _apply_sampling_constraints_with(original: Any) -> Any:
    def apply_sampling_constraints(logits: Any, cu_num_draft_tokens: Any, sampling_metadata: Any) -> Any:
        return original(logits, cu_num_draft_tokens, sampling_metadata) if len(logits) else logits

    return apply_sampling_constraints
