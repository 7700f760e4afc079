"""On CPUs vLLM verifies drafts with uninitialised temperatures: a fix, for CPUs alone.

Its stand-in for the Triton kernel ``expand_kernel`` (utils/cpu_triton_utils.py, in all releases we support) converts
the output to int64 and writes into the copy, so with drafts and a temperature above 0 whether a draft is accepted
depends on what was in that memory. What the kernel is for, repeating one value per request for each of its drafts, is
one line of torch.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target

_MODULE = "vllm.v1.sample.rejection_sampler"
_PARAMETERS = ("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to")


def expand(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: float = 0, replace_to: float = 0) -> Any:
    """[requests] → [num_tokens]: the value of each request for each of its tokens, ``replace_from`` replaced."""
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return torch.repeat_interleave(x, counts, output_size=num_tokens)


def _apply() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = expand


HOOK = Hook(
    name="cpu-temperatures",
    summary="on CPUs, drafts are verified at the temperature of their request",
    targets=(Target(_MODULE, "expand_batch_to_tokens", _PARAMETERS),),
    apply=_apply,
    required=False,
    without_it="on CPUs, sampled requests lose drafts they should keep; their texts stay valid",
)
