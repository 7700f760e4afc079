"""Worker: follows the grammars of constrained requests on the device (see `walk_kernels`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dotllm.vllm_plugin.gpu.mask_table import MaskTable, to_device
from dotllm.vllm_plugin.gpu.walk_message import PLACE, WalkStep

_FIRST_HEAP = 1 << 22  # ints: 16 MiB


class Walker:
    """The device's side of `walk.Walk`. All work is queued on the current stream; nothing waits."""

    def __init__(self, table: MaskTable) -> None:
        self.table = table
        self.device = table.device
        self.sender: int | None = None
        self.lengths: Any = None  # the model runner's count of tokens by request state
        self._begin()

    def _begin(self) -> None:
        self.slot_of: dict[str, int] = {}
        self.heap = torch.zeros(_FIRST_HEAP, dtype=torch.int32, device=self.device)
        self.places = torch.zeros((0, PLACE), dtype=torch.int32, device=self.device)
        self.walked = torch.zeros((0, PLACE), dtype=torch.int32, device=self.device)
        self._requests: list[str] | None = None
        self._slots = torch.zeros(0, dtype=torch.int32, device=self.device)

    def update(self, step: WalkStep) -> None:
        """Take in what ``step`` brings."""
        if step.sender != self.sender:
            self.sender = step.sender
            self._begin()
        if step.tokens is not None:
            tokens = step.tokens
            self.token_data = torch.from_numpy(tokens.data).to(self.device)
            self.token_offset = torch.from_numpy(tokens.offset).to(self.device)
            self.ends = torch.from_numpy(tokens.ends).to(self.device)
        if len(step.new_slots) or self.table.sender != step.sender:
            self.table.update(step)
        if len(step.patch_at):
            self._patch(step)
        if step.places is not None:
            self.places = to_device(step.places, self.device)
            if len(self.walked) < len(self.places):
                walked = torch.zeros_like(self.places)
                walked[: len(self.walked)] = self.walked
                self.walked = walked
        if step.assigned or step.released:
            self._requests = None
            for request in step.released:
                self.slot_of.pop(request, None)
            self.slot_of.update(step.assigned)

    def _patch(self, step: WalkStep) -> None:
        needed = int(step.patch_at.max()) + 1
        if needed > len(self.heap):
            heap = torch.zeros(max(needed, 2 * len(self.heap)), dtype=torch.int32, device=self.device)
            heap[: len(self.heap)] = self.heap
            self.heap = heap
        both = to_device(np.stack((step.patch_at, step.patch)), self.device)
        from dotllm.vllm_plugin.gpu.kernels import scatter

        scatter(self.heap, both[0], both[1])

    def slots(self, requests: list[str]) -> torch.Tensor:
        """int32 [requests], the slot of each request of the batch, -1 for those that are not constrained."""
        if requests != self._requests:
            self._requests = list(requests)
            slots = np.fromiter((self.slot_of.get(r, -1) for r in requests), np.int32, len(requests))
            self._slots = to_device(slots, self.device)
        return self._slots

    def mask(self, logits: torch.Tensor, batch: Any, lengths: torch.Tensor) -> None:
        """Mask the logits of a batch without drafts. lengths: int32, tokens so far by request state."""
        from dotllm.vllm_plugin.gpu.walk_kernels import apply_masks

        slots = self.slots(batch.req_ids)
        apply_masks(logits, slots, batch.idx_mapping, lengths, self.places, self.walked, self.table.rows)

    def advance(self, batch: Any, lengths: torch.Tensor, sampled: Any, num_sampled: Any, num_rejected: Any) -> None:
        """Take the sampled tokens; cross out those of requests whose place was not known."""
        from dotllm.vllm_plugin.gpu.walk_kernels import walk

        walk(
            self.slots(batch.req_ids), batch.idx_mapping, lengths, self.places, self.walked, self.heap, self.token_data,
            self.token_offset, self.ends, sampled, num_sampled, num_rejected,
        )  # fmt: skip
