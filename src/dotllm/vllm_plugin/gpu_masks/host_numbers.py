"""Worker: numbers that a kernel reads where the host has written them.

Bringing a few hundred numbers to the device takes the host more than launching the kernel that needs them. But a kernel
can read the host's pinned memory by itself, and does so while the host is at something else
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#mapped-memory).
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import torch

from dotllm.vllm_plugin.gpu_masks.host_memory import turns
from dotllm.vllm_plugin.gpu_masks.message import Int32

_MIN_NUMBERS = 512  # numbers there is room for


class HostNumbers:
    """Pairs of int32 arrays of one length, for kernels on ``device``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._outgrown: list[Any] = []  # a launch may still wait to read it
        self._make_room(_MIN_NUMBERS)

    def write(self, first: Int32, second: Int32) -> tuple[torch.Tensor, torch.Tensor]:
        """Tensors that begin with ``first`` and ``second``."""
        count = len(first)
        if count > self._room:
            self._outgrown.append(self._turns)
            self._make_room(2 * count)
        numbers, tensors = next(self._turns)
        numbers[0, :count] = first
        numbers[1, :count] = second
        return tensors

    def _make_room(self, numbers: int) -> None:
        self._room = numbers
        self._turns = cycle([(array, (memory[0], memory[1])) for memory, array in turns(self._device, 2, numbers)])
