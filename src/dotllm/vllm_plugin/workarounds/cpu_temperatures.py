"""On CPUs vLLM verifies drafts with uninitialised temperatures: a fix, for CPUs alone.

Its stand-in for the Triton kernel ``expand_kernel`` (``utils/cpu_triton_utils.py``, ``_expand_kernel_impl``) converts
the output to int64 and writes into the copy, so with drafts and a temperature above 0 whether a draft is accepted
depends on what was in that memory. What the kernel is for, repeating one value per request for each of its drafts, is
one line of torch.

vLLM 0.32 and 0.33. To be deleted when the stand-in writes floats into the tensor that it is given.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.workarounds import on_cpu

HOOK = Hook(
    name="cpu-temperatures",
    summary="on CPUs, drafts are verified at the temperature of their request",
    where=on_cpu,
    without_it="on CPUs, sampled requests lose drafts they should keep; their texts stay valid",
)


def expand(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: float = 0, replace_to: float = 0) -> Any:
    """[requests] → [num_tokens]: the value of each request for each of its tokens, ``replace_from`` replaced."""
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return torch.repeat_interleave(x, counts, output_size=num_tokens)


@HOOK.replaces("vllm.v1.sample.rejection_sampler:expand_batch_to_tokens")
def _expand_batch_to_tokens_with(_: Any) -> Any:
    return expand
