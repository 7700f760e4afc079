"""Worker: follows the grammars of constrained requests on the device (see `walk_kernels`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat
from typing import Any

import numpy as np
import torch

from dotllm.vllm_plugin.gpu.walk_kernels import Batch, Fixed
from dotllm.vllm_plugin.gpu.walk_message import PLACE, WalkStep
from dotllm.vllm_plugin.gpu_masks.board import Board
from dotllm.vllm_plugin.gpu_masks.mask_table import MaskTable
from dotllm.vllm_plugin.gpu_masks.message import Int32
from dotllm.vllm_plugin.gpu_masks.upload import runs_of, upload

_FIRST_HEAP = 1 << 22  # ints: 16 MiB
# Steps whose counts are kept. They are copied to the host behind the step, and vLLM launches at most two steps before
# it looks at the first one's results.
RING = 8

Counts = tuple[torch.Tensor, torch.Tensor]
"""int32 [requests] each: tokens sampled (1 or 0), and 1 for a request that has to repeat its step"""


class Walker:
    """The device's side of `walk.Walk`. All work is queued on the current stream; nothing waits."""

    def __init__(self, table: MaskTable) -> None:
        self.table = table
        self.device = table.device
        self.sender: int | None = None
        self.states: Any = None  # vLLM's ``RequestState``
        self.counts: Counts | None = None  # of the step that is being launched, once its logits are masked
        self._rings: dict[int, Iterator[Counts]] = {}
        self._begin()

    def _begin(self) -> None:
        self.slot_of: dict[str, int] = {}
        self.heap = torch.zeros(_FIRST_HEAP, dtype=torch.int32, device=self.device)
        self.board = Board(self.device)
        self.walked = torch.zeros((0, 2, PLACE), dtype=torch.int32, device=self.device)
        self._fixed: Fixed | None = None
        self._requests: list[str] = []  # those that the board has the slots of; empty: it must be written

    def update(self, step: WalkStep, requests: list[str]) -> None:
        """Take in what ``step`` brings; ``requests`` are the batch that it is for."""
        if step.sender != self.sender:
            self.sender = step.sender
            self._begin()
        if step.tokens is not None:
            tokens = step.tokens
            data, offset, ends = (
                torch.from_numpy(array).to(self.device) for array in (tokens.data, tokens.offset, tokens.ends)
            )
            self._tokens = (data, offset, ends)
        if step.assigned or step.released:
            self._requests = []
            for request in step.released:
                self.slot_of.pop(request, None)
            self.slot_of.update(step.assigned)
        self.table.make_room(step)
        if len(step.runs) or len(step.new_slots):
            self._write_tables(step)
        if step.places is not None or requests != self._requests:
            self._write_board(step.places, requests)

    def _write_tables(self, step: WalkStep) -> None:
        """Rows of masks and pieces of byte tables, in one copy and one launch."""
        from dotllm.vllm_plugin.gpu_masks.kernels import write_runs

        stage, (_, _, runs) = upload(self.device, (step.patch, step.new_rows, self._runs(step)))
        write_runs(runs, stage, self.heap, self.table.rows)

    def _write_board(self, places: Int32 | None, requests: list[str]) -> None:
        """Who stands where, in one copy."""
        slots = np.fromiter(map(self.slot_of.get, requests, repeat(-1)), np.int32, len(requests))
        self.board.write(slots, places)
        self._requests = list(requests)
        if len(self.walked) < len(self.board.places):
            walked = torch.zeros((len(self.board.places), 2, PLACE), dtype=torch.int32, device=self.device)
            walked[: len(self.walked)] = self.walked
            self.walked = walked

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

    def mask(self, logits: torch.Tensor, batch: Any) -> None:
        """Take the tokens that a step has run, and mask its logits. batch: vLLM's, without drafts. Sets `counts`."""
        fixed, states, board = self._fixed, self.states, self.board
        if (
            fixed is None
            or fixed.lengths is not states.total_len.gpu
            or fixed.places is not board.places
            or fixed.heap is not self.heap
            or fixed.table is not self.table.rows
        ):
            fixed = self._fixed = Fixed(
                board.slots, states.total_len.gpu, board.places, self.walked, self.heap, self._tokens, self.table.rows
            )
        requests = len(self._requests)
        self.counts = self._next_counts(requests)
        prefill = states.prefill_len.gpu
        fixed.follow_and_mask(
            logits,
            requests,
            Batch(batch.logits_indices, batch.input_ids, batch.idx_mapping, batch.seq_lens, prefill, *self.counts),
        )

    def _next_counts(self, requests: int) -> Counts:
        ring = self._rings.get(requests)
        if ring is None:
            # Each begins at a multiple of 16 bytes, as vLLM's own do: Triton compiles vLLM's kernels anew for others.
            both = torch.zeros((RING, 2, -(-requests // 4) * 4), dtype=torch.int32, device=self.device)
            ring = self._rings[requests] = cycle([(one[:requests], two[:requests]) for one, two in both])
        return next(ring)
