"""Worker: numbers that a kernel reads where the host has written them.

Bringing a few hundred numbers to the device takes the host three calls (a pinned buffer, the copy, views of it), which
is more than launching the kernel that needs them. But a kernel can read the host's pinned memory by itself, and does so
while the host is at something else (https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#mapped-memory).
So the host writes them into memory that is there already, and launches.

Memory must not be written again before the kernel has read it. Nothing waits for that: places take turns, and there are
more of them than an engine has steps in flight (two, or one for each pipeline stage).
"""

from __future__ import annotations

from itertools import cycle

import torch

from dotllm.vllm_plugin.gpu.message import Int32

TURNS = 64
_LEAST = 512  # numbers a place has room for


class HostNumbers:
    """Pairs of int32 arrays of one length, for kernels on ``device``."""

    def __init__(self, device: torch.device) -> None:
        self._pinned = device.type != "cpu"
        self._kept: list[torch.Tensor] = []  # what was outgrown may still be waited for by a launch
        self._make_room(_LEAST)

    def write(self, first: Int32, second: Int32) -> tuple[torch.Tensor, torch.Tensor]:
        """Tensors that begin with ``first`` and ``second``."""
        count = len(first)
        if count > self._room:
            self._make_room(2 * count)
        arrays, tensors = next(self._places)
        arrays[0, :count] = first
        arrays[1, :count] = second
        return tensors

    def _make_room(self, numbers: int) -> None:
        memory = torch.zeros((TURNS, 2, numbers), dtype=torch.int32, pin_memory=self._pinned)
        self._kept.append(memory)
        self._room = numbers
        self._places = cycle([(place.numpy(), (place[0], place[1])) for place in memory])
