"""Worker: the log-sum-exp of chosen rows of logits before and after their mask, without waiting for the device.

A row's log-sum-exp after a mask, minus its log-sum-exp before, is the logarithm of the probability that the mask
leaves. On a GPU a kernel reads each row once (torch's own ``logsumexp`` writes several copies of all rows in float32),
and the second time it subtracts, and writes to the host's memory: two launches, and no copy.
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

    def before(self, logits: torch.Tensor, where: Int32, *starts: Any) -> torch.Tensor:
        """float32 [len(where)], on the device: the log-sum-exps of these rows. where, starts: see `kernels.log_sums`;
        ``starts`` includes its most_positions. Rows that there are not have any sum."""
        if self._staging is None:
            return by_torch(logits, torch.from_numpy(where).to(self.device), *starts)
        sums = torch.empty(len(where), dtype=torch.float32, device=logits.device)
        self._sum(logits, where, sums, None, *starts)
        return sums

    def masses(self, before: torch.Tensor, logits: torch.Tensor, where: Int32, *starts: Any) -> torch.Tensor:
        """float32 [len(where)], on the host: what the mask, which has been applied, left of each row. The device writes
        them, and they are valid until it has done a few steps more."""
        if self._staging is None:
            after = by_torch(logits, torch.from_numpy(where).to(self.device), *starts)
            return (after - before).to("cpu", non_blocking=True)
        if len(where) > self._room:
            self._room = max(_MIN_ROWS, 2 * len(where))
            self._out = cycle(turns((self._room,), self.device, torch.float32))
        _, out = next(self._out)
        self._sum(logits, where, out, before, *starts)
        return out[: len(where)]

    def _sum(self, logits: torch.Tensor, where: Int32, sums: Any, minus: Any, *starts: Any) -> None:
        from dotllm.device_masks.kernels import log_sums

        assert self._staging is not None
        (rows,) = self._staging.write(where)
        log_sums(logits, len(where), rows, sums, minus, *starts)


def by_torch(logits: torch.Tensor, rows: torch.Tensor, starts: Any = None, most_positions: int = 1) -> torch.Tensor:
    """float32 [len(rows)]: the log-sum-exps of these rows, on any device."""
    rows = rows.long().clamp(min=0)
    if starts is not None:
        rows = starts.long()[rows // most_positions] + rows % most_positions
    rows = rows.clamp(max=len(logits) - 1)  # (for a row that there is not, any will do)
    return torch.cat([torch.logsumexp(logits[some].float(), 1) for some in rows.split(_ROWS_AT_ONCE)])
