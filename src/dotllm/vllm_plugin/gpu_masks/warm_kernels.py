"""Worker: our Triton kernels are compiled while vLLM warms up its own, not in the first constrained step.

Triton compiles a kernel when it is first launched, some 0.3 s each, in which a whole batch would stand still; vLLM 0.33
warns of that. vLLM's warm-up of the V2 runner masks the logits of some made-up requests with a bitmask that allows
everything. Behind that the kernels are launched once on the same logits, with masks that allow everything, too: so
nothing changes.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from dotllm.vllm_plugin.gpu_masks.message import MaskRows

logger = logging.getLogger(__name__)


def warm(logits: Any, words: int) -> None:
    """Launch all kernels on ``logits`` [requests, vocabulary], which stay as they are. words: int32s of a mask row."""
    import torch

    from dotllm.vllm_plugin.gpu_masks.mask_table import MAX_ROWS_ONE_BY_ONE, MaskTable

    none = np.zeros(0, np.int32)
    rows = np.full((1, words), -1, np.int32)
    table = MaskTable(logits.device)
    one = np.zeros(1, np.int32)
    table.apply(logits, np.full(1, -1, np.int32), MaskRows(0, one + 1, one, one, rows))
    for where in (np.zeros(1, np.int32), np.full(MAX_ROWS_ONE_BY_ONE + 1, -1, np.int32)):  # one by one, and together
        count = len(where)
        message = MaskRows(0, np.ones(count, np.int32), np.zeros(count, np.int32), none, rows[:0])
        table.apply(logits, where, message)
    if logits.device.type == "cuda":
        torch.cuda.synchronize(logits.device)  # before what the kernels read goes


def try_to_warm(logits: Any, words: int) -> None:
    """`warm`; what goes wrong is only said."""
    try:
        warm(logits, words)
    except Exception as error:
        logger.info("our kernels are compiled when they are first used: %s: %s", type(error).__name__, error)
