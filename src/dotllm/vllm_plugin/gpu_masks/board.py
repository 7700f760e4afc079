"""Worker: who stands where, on the device: the slot of each request of a batch, and the places of all slots.

In most steps of a large batch somebody has come or gone, so both are brought there again and again: by one copy, to
where they were before, so that nothing else about the kernel's launch changes.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import torch

from dotllm.vllm_plugin.gpu.walk_message import PLACE
from dotllm.vllm_plugin.gpu_masks.host_memory import turns
from dotllm.vllm_plugin.gpu_masks.message import Int32

_MIN_SLOTS = 64  # slots, requests


class Board:
    """See the module. The kernels before a `write` see what was there, those after it what is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: Int32 = np.zeros((0, PLACE), np.int32)  # places that were written
        self._make_room(0, 0)

    def write(self, slots: Int32, places: Int32 | None) -> None:
        """slots: int32 [requests], by their order in the batch. places: int32 [slots, PLACE]; None: as before."""
        if places is not None:
            self._last = places
        last = self._last
        if len(last) > len(self.places) or len(slots) > len(self.slots):
            self._make_room(len(last), len(slots))
        memory, numbers = next(self._turns)
        numbers[: last.size] = last.ravel()
        numbers[self._first_slot : self._first_slot + len(slots)] = slots
        self._all.copy_(memory, non_blocking=True)

    def _make_room(self, places: int, slots: int) -> None:
        places, slots = (max(_MIN_SLOTS, 1 << (count - 1).bit_length()) for count in (places, slots))
        self._first_slot = places * PLACE
        self._all = torch.zeros(self._first_slot + slots, dtype=torch.int32, device=self._device)
        self._turns = cycle(turns(self._device, len(self._all)))
        self.places = self._all[: self._first_slot].view(-1, PLACE)
        """int32 [slots or more, PLACE], on the device; another tensor when it has grown"""
        self.slots = self._all[self._first_slot :]
        """int32 [requests or more]"""
