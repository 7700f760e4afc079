"""Worker: bringing a step's news to the device with one copy and one kernel.

A message has several small arrays (places, slots, rows of masks, pieces of tables). Pinned, copied and scattered one by
one they cost the host 0.5 ms, mostly per call and not per byte; so they are put into one pinned buffer, which is copied
at once, and a kernel writes from there what belongs into tables. Nothing waits: torch keeps a pinned buffer until the
copy is done (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dotllm.vllm_plugin.gpu_masks.message import Int32

RUN = 4  # ints that describe a run for `kernels.write_runs`: which target, where in it, where from, how many
LONGEST = 1024  # ints of a run


def upload(device: torch.device, arrays: Sequence[Int32]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(all of ``arrays`` in one int32 tensor on ``device``, flat views of it for each of them)."""
    sizes = [array.size for array in arrays]
    host = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=device.type != "cpu")
    buffer, at = host.numpy(), 0
    for array, size in zip(arrays, sizes, strict=True):
        buffer[at : at + size] = array.ravel()
        at += size
    stage = host.to(device, non_blocking=True)
    return stage, list(stage.split(sizes))


def runs_of(target: int, start: Int32, count: Int32, source: int) -> Int32:
    """int32 [n, RUN], for data that lies back to back from ``source`` on: count[i] ints each, to start[i] and after it
    in target number ``target``; in pieces of `LONGEST`."""
    pieces = -(-count // LONGEST)
    owner = np.repeat(np.arange(len(count)), pieces)
    done = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * LONGEST
    runs = np.empty((len(owner), RUN), np.int32)
    runs[:, 0] = target
    runs[:, 1] = start[owner] + done
    runs[:, 2] = source + (np.cumsum(count) - count)[owner] + done
    runs[:, 3] = np.minimum(LONGEST, count[owner] - done)
    return runs
