"""Worker: the log-sum-exp of chosen rows of logits, without waiting for the device.

A row's log-sum-exp after a mask, minus its log-sum-exp before, is the logarithm of the probability that the mask
leaves. On a GPU a kernel reads each row once. (torch's own ``logsumexp`` writes several copies of all rows in float32.)
"""

from __future__ import annotations

from typing import Any

import torch

from dotllm.arrays import Int32
from dotllm.device_masks.mask_table import Staging

_ROWS_AT_ONCE = 32  # rows that torch copies at a time


class LogSums:
    """See the module. Each model runner has one, which reuses the memory of the row numbers."""

    def __init__(self, device: torch.device, *, by_kernel: bool) -> None:
        """``by_kernel``: the device runs Triton's kernels, which can read the host's pinned memory."""
        self.device = device
        self._staging = Staging(device, 1) if by_kernel else None

    def __call__(self, logits: torch.Tensor, where: Int32, starts: Any = None, most_positions: int = 1) -> torch.Tensor:
        """float32 [len(where)], on the device. where, starts, most_positions: see `kernels.log_sums`."""
        if self._staging is None:
            return by_torch(logits, torch.from_numpy(where).to(self.device), starts, most_positions)
        (rows,) = self._staging.write(where)
        return self._by_kernel(logits, len(where), rows, starts, most_positions)

    @staticmethod
    def _by_kernel(logits: torch.Tensor, count: int, rows: Any, starts: Any, most_positions: int) -> torch.Tensor:
        from dotllm.device_masks.kernels import BLOCK, log_sums

        blocks = torch.empty((count, -(-logits.shape[-1] // BLOCK)), dtype=torch.float32, device=logits.device)
        log_sums(logits, count, rows, blocks, starts, most_positions)
        return torch.logsumexp(blocks, 1)


def by_torch(logits: torch.Tensor, rows: torch.Tensor, starts: Any = None, most_positions: int = 1) -> torch.Tensor:
    """The same sums on any device."""
    rows = rows.long()
    if starts is not None:
        begin = starts.long()[rows // most_positions] + rows % most_positions
        rows = begin.clamp(max=len(logits) - 1)  # (for a position that a request does not have, any row will do)
    return torch.cat([torch.logsumexp(logits[some].float(), 1) for some in rows.split(_ROWS_AT_ONCE)])
