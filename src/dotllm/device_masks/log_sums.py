"""Worker: the log-sum-exp of chosen rows of logits before and after their mask, without waiting for the device.

A row's log-sum-exp after a mask, minus its log-sum-exp before, is the logarithm of the probability that the mask
leaves. On a GPU a kernel reads each row once (torch's own ``logsumexp`` writes several copies of all rows in float32),
and another one subtracts, and writes to the host's memory. With one program for each row, the second kernel would not
be needed, but this took 0.2 to 0.9 ms (H200, 1 and 256 rows of 131,072 logits): many programs must sum a row at once.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import torch

from dotllm.arrays import Int32
from dotllm.device_masks.mask_table import Staging, turns

_ROWS_AT_ONCE = 32  # rows that torch copies at a time
_MIN_ROWS = 512


class LogSums:
    """See the module. Each model runner has one, which reuses the host's memory."""

    def __init__(self, device: torch.device, *, by_kernel: bool) -> None:
        """``by_kernel``: the device runs Triton's kernels, which can read and write the host's pinned memory."""
        self.device = device
        self._staging = Staging(device, 1) if by_kernel else None
        self._room = 0

    def __call__(self, logits: torch.Tensor, where: Int32, starts: Any = None, most_positions: int = 1) -> torch.Tensor:
        """float32 [len(where), n], on the device: the log-sum-exps of n blocks of each row. where, starts,
        most_positions: see `kernels.log_sums`. The sums of rows that do not exist are arbitrary."""
        if self._staging is None:
            rows = torch.from_numpy(where).to(self.device)
            return by_torch(logits, rows, starts, most_positions)[:, None]
        from dotllm.device_masks.kernels import SUMMED, log_sums

        (rows,) = self._staging.write(where)
        blocks = torch.empty((len(where), -(-logits.shape[-1] // SUMMED)), dtype=torch.float32, device=logits.device)
        log_sums(logits, len(where), rows, blocks, starts, most_positions)
        return blocks

    def masses(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """float32 [rows], on the host: what the mask left of each row, given its blocks before it and after it. The
        device writes them; they are valid until it has done a few steps more."""
        count = len(before)
        if self._staging is None:
            return (torch.logsumexp(after, 1) - torch.logsumexp(before, 1)).to("cpu", non_blocking=True)
        from dotllm.device_masks.kernels import log_differences

        if count > self._room:
            self._room = max(_MIN_ROWS, 2 * count)
            self._out = cycle(turns((self._room,), self.device, torch.float32))
        _, out = next(self._out)
        log_differences(before, after, out)
        return out[:count]


def by_torch(logits: torch.Tensor, rows: torch.Tensor, starts: Any = None, most_positions: int = 1) -> torch.Tensor:
    """float32 [len(rows)]: the log-sum-exps of these rows, on any device."""
    rows = rows.long().clamp(min=0)
    if starts is not None:
        rows = starts.long()[rows // most_positions] + rows % most_positions
    rows = rows.clamp(max=len(logits) - 1)  # (for a row that does not exist, any number will do)
    return torch.cat([torch.logsumexp(logits[part].float(), 1) for part in rows.split(_ROWS_AT_ONCE)])
