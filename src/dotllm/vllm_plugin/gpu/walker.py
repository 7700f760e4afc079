"""Worker: follows the grammars of constrained requests on the device (see `walk_kernels`)."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
import torch

from dotllm.vllm_plugin.gpu.mask_table import MaskTable
from dotllm.vllm_plugin.gpu.message import Int32
from dotllm.vllm_plugin.gpu.upload import runs_of, upload
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

    def update(self, step: WalkStep, requests: list[str]) -> None:
        """Take in what ``step`` brings; ``requests`` are the batch that it is for."""
        if step.sender != self.sender:
            self.sender = step.sender
            self._begin()
        if step.tokens is not None:
            tokens = step.tokens
            self.token_data = torch.from_numpy(tokens.data).to(self.device)
            self.token_offset = torch.from_numpy(tokens.offset).to(self.device)
            self.ends = torch.from_numpy(tokens.ends).to(self.device)
        if step.assigned or step.released:
            self._requests = None
            for request in step.released:
                self.slot_of.pop(request, None)
            self.slot_of.update(step.assigned)
        self.table.make_room(step)
        if step.places is not None or len(step.runs) or len(step.new_slots) or requests != self._requests:
            self._take_in(step, requests)

    def _take_in(self, step: WalkStep, requests: list[str]) -> None:
        """All arrays of a step in one copy; tables are written from there, the others stay where they are."""
        arrays = [np.fromiter(map(self.slot_of.get, requests, repeat(-1)), np.int32, len(requests))]
        if step.places is not None:
            arrays.append(step.places)
        if len(step.runs) or len(step.new_slots):
            arrays = [step.patch, step.new_rows, *arrays, self._runs(step)]
            stage, (_, _, slots, *places, runs) = upload(self.device, arrays)
            from dotllm.vllm_plugin.gpu.kernels import write_runs

            write_runs(runs, stage, self.heap, self.table.rows)
        else:
            _, (slots, *places) = upload(self.device, arrays)
        if places:
            self._know_places(places[0].view(-1, PLACE))
        self._requests, self._slots = list(requests), slots

    def _runs(self, step: WalkStep) -> Int32:
        """What ``step`` writes into tables, for a stage that begins with its patch and its new rows."""
        start, count = step.runs[:, 0], step.runs[:, 1]
        self._make_room(int((start + count).max(initial=0)))
        return np.concatenate((runs_of(0, start, count, source=0), self.table.runs(step, source=step.patch.size)))

    def _make_room(self, needed: int) -> None:
        if needed > len(self.heap):
            heap = torch.zeros(max(needed, 2 * len(self.heap)), dtype=torch.int32, device=self.device)
            heap[: len(self.heap)] = self.heap
            self.heap = heap

    def _know_places(self, places: torch.Tensor) -> None:
        self.places = places
        if len(self.walked) < len(places):
            walked = torch.zeros_like(places)
            walked[: len(self.walked)] = self.walked
            self.walked = walked

    def mask(self, logits: torch.Tensor, batch: Any, lengths: torch.Tensor) -> None:
        """Mask the logits of a batch without drafts. lengths: int32, tokens so far by request state."""
        from dotllm.vllm_plugin.gpu.walk_kernels import apply_masks

        apply_masks(logits, self._slots, batch.idx_mapping, lengths, self.places, self.walked, self.table.rows)

    def advance(self, batch: Any, lengths: torch.Tensor, sampled: Any, num_sampled: Any, num_rejected: Any) -> None:
        """Take the sampled tokens; cross out those of requests whose place was not known."""
        from dotllm.vllm_plugin.gpu.walk_kernels import walk

        walk(
            self._slots, batch.idx_mapping, lengths, self.places, self.walked, self.heap, self.token_data,
            self.token_offset, self.ends, sampled, num_sampled, num_rejected,
        )  # fmt: skip
