"""The functions of `dotllm.numpy` for torch tensors, under the names that xgrammar and llguidance use.

Bitmasks are filled on the CPU and applied on the device of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dotllm import numpy as on_arrays
from dotllm.index import Guide, advance_guides
from dotllm.index.batch import THREADS

__all__ = [
    "advance_guides",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "fill_next_token_bitmask",
    "fill_next_token_bitmask_par",
]


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> torch.Tensor:
    """A bitmask int32 [batch_size, ceil(vocab_size / 32)] on the CPU that allows every token; pinned if there is a GPU,
    so that copies to it are asynchronous."""
    pinned = torch.cuda.is_available()
    return torch.full((batch_size, -(-vocab_size // 32)), -1, dtype=torch.int32, pin_memory=pinned)


def fill_next_token_bitmask(guide: Guide, bitmask: torch.Tensor, index: int = 0) -> None:
    """Write the tokens that ``guide`` allows next into ``bitmask[index]``, which is on the CPU. Raises what
    `dotllm.numpy.fill_next_token_bitmask` raises, and TypeError for a bitmask on another device."""
    on_arrays.fill_next_token_bitmask(guide, bitmask.numpy(), index)


def fill_next_token_bitmask_par(
    guides: Sequence[tuple[Guide, int]], bitmask: torch.Tensor, *, threads: int = THREADS
) -> None:
    """`fill_next_token_bitmask` for many guides of one vocabulary, each with its row, on ``threads`` cores (default: a
    few). Raises what `dotllm.numpy.fill_next_token_bitmask_par` raises."""
    on_arrays.fill_next_token_bitmask_par(guides, bitmask.numpy(), threads=threads)


def apply_token_bitmask_inplace(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """Set the logits, floats [batch, tokens] or [tokens], of all tokens that are not allowed to minus infinity. Tokens
    beyond the bitmask are not allowed. The bitmask is copied to the device of the logits if it is on another one.

    Raises:
        TypeError: the logits are not floats, or the bitmask is not int32.
        ValueError: the numbers of rows differ.
    """
    kinds = [getattr(tensor, "dtype", type(tensor).__name__) for tensor in (logits, bitmask)]
    if not getattr(kinds[0], "is_floating_point", False) or kinds[1] != torch.int32:
        raise TypeError(f"expected float logits and an int32 bitmask, got {kinds[0]} and {kinds[1]}")
    if logits.shape[:-1] != bitmask.shape[:-1] and (logits.ndim, *bitmask.shape[:-1]) != (1, 1):
        shapes = f"{tuple(bitmask.shape)} and {tuple(logits.shape)}"
        raise ValueError(f"expected one bitmask row for each row of logits, got shapes {shapes}")
    tokens = logits.shape[-1]
    words = bitmask.to(logits.device, non_blocking=True).unsqueeze(-1)
    bits = words.bitwise_right_shift(torch.arange(32, dtype=torch.int32, device=logits.device)).bitwise_and(1)
    allowed = bits.flatten(-2)[..., :tokens].reshape(*logits.shape[:-1], -1)
    logits[..., : allowed.shape[-1]].masked_fill_(allowed == 0, -torch.inf)
    logits[..., allowed.shape[-1] :] = -torch.inf
