"""Worker: memory of the host that the device may read, there before it is needed.

Pinning memory for a few hundred numbers takes the host as long as launching a kernel. So there is some, and what is
written takes turns in it: nothing is written again before the device has read it, since there are more turns than an
engine has steps in flight (two, or one for each pipeline stage), and nobody waits.
"""

from __future__ import annotations

import torch

from dotllm.vllm_plugin.gpu_masks.message import Int32

TURNS = 64

Turn = tuple[torch.Tensor, Int32]
"""One memory, as the device and as the host see it"""


def turns(device: torch.device, *shape: int) -> list[Turn]:
    """Memories of int32 [shape], pinned if ``device`` is not the CPU, to be used one after another."""
    memory = torch.zeros((TURNS, *shape), dtype=torch.int32, pin_memory=device.type != "cpu")
    return [(turn, turn.numpy()) for turn in memory]
