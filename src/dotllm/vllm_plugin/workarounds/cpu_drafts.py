"""vLLM's rejection sampler on CPUs (``v1/sample/rejection_sampler.py``): two fixes, only for CPUs.

Temperatures: its stand-in for the Triton kernel ``expand_kernel`` (``utils/cpu_triton_utils.py``,
``_expand_kernel_impl``) converts the output to int64 and writes into the copy. So, with drafts and a temperature above
0, the old content of the output decides whether a draft is accepted. The kernel's task, repeating the value of a
request for each of its drafts, is one line of torch.

Steps without drafts: on a server that speculates, vLLM sends every step through its rejection sampler, with drafts or
without. Without Triton, it applies ``top_k`` to the logits of the drafts by a maximum over all rows. Without rows,
that maximum does not exist, and the engine dies.

vLLM 0.32 and 0.33. To be deleted when the stand-in writes floats into the tensor that it is given, and
``apply_sampling_constraints`` takes logits without rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.workarounds import on_cpu

if TYPE_CHECKING:
    import torch

HOOK = Hook(
    summary="on CPUs, drafts are verified at the temperature of their request, and steps without drafts may use top_k",
    where=on_cpu,
    without_it="on CPUs with speculation, sampled requests lose drafts they should keep, and top_k or top_p may end "
    "the server",
)


@HOOK.replaces("vllm.v1.sample.rejection_sampler:expand_batch_to_tokens")
def expand(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: float = 0, replace_to: float = 0
) -> torch.Tensor:
    """[requests] → [num_tokens]: the value of each request for each of its tokens, ``replace_from`` replaced."""
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return torch.repeat_interleave(x, counts, output_size=num_tokens)


@HOOK.replaces("vllm.v1.sample.rejection_sampler:apply_sampling_constraints")
def _apply_sampling_constraints(
    logits: torch.Tensor, cu_num_draft_tokens: torch.Tensor, sampling_metadata: object, *, original: Original
) -> object:
    return original(logits, cu_num_draft_tokens, sampling_metadata) if len(logits) else logits
