"""On CPUs vLLM dies of a step without drafts in which somebody asks for ``top_k`` or ``top_p``: a fix, for CPUs alone.

Where a server speculates, vLLM sends every step through its rejection sampler (0.32), drafts or none, and without
Triton ``top_k`` is applied to the logits of the drafts by a maximum over all of them, which no rows do not have.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_MODULE = "vllm.v1.sample.rejection_sampler"


def _apply_sampling_constraints_with(original: Any) -> Any:
    def apply_sampling_constraints(logits: Any, cu_num_draft_tokens: Any, sampling_metadata: Any) -> Any:
        return original(logits, cu_num_draft_tokens, sampling_metadata) if len(logits) else logits

    return apply_sampling_constraints


def _apply() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.v1.sample import rejection_sampler

    replace_once(rejection_sampler, "apply_sampling_constraints", _apply_sampling_constraints_with)


HOOK = Hook(
    name="cpu-no-drafts",
    summary="on CPUs, steps without drafts may have requests with top_k or top_p",
    targets=(Target(_MODULE, "apply_sampling_constraints", ("logits", "cu_num_draft_tokens", "sampling_metadata")),),
    apply=_apply,
    required=False,
    without_it="on CPUs with speculation, top_k or top_p may end the server",
)
