"""The workers' side: a `MaskRows` message in place of a bitmask is applied from the table; anything else is vLLM's.

Both model runners call something named ``apply_grammar_bitmask``: V1 a function, V2 a method of the object that holds
its buffers.

Triton compiles a kernel at its first launch, some 0.3 s for which a batch would wait. So we launch our kernel once, to
mask nothing, in the warm-up of the V2 runner, right after vLLM masks the logits of made-up requests with a bitmask.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import torch

from dotllm.device_masks.mask_table import MaskTable
from dotllm.device_masks.message import MaskRows, positions
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Original
from dotllm.vllm_plugin.settings import gpu_masks

logger = logging.getLogger(__name__)


@functools.cache  # one model runner a process and device
def table(device: torch.device) -> MaskTable:
    """The `MaskTable` of a device."""
    return MaskTable(device)


def v1(
    scheduler_output: vllm_types.SchedulerOutput,
    grammar_output: vllm_types.GrammarOutput,
    input_batch: vllm_types.InputBatchV1,
    logits: torch.Tensor,
    *,
    original: Original,
) -> None:
    """Of V1's function."""
    message = grammar_output.grammar_bitmask
    if not isinstance(message, MaskRows):
        original(scheduler_output, grammar_output, input_batch, logits)
        return
    drafts, first, at = scheduler_output.scheduled_spec_decode_tokens, {}, 0
    for name in input_batch.req_ids:
        first[name] = at
        at += 1 + len(drafts.get(name, ()))
    ids = grammar_output.structured_output_request_ids
    table(logits.device).apply(logits, positions(message.counts, [first.get(name, -1) for name in ids]), message)


def v2(
    self: vllm_types.StructuredOutputsWorker,
    logits: torch.Tensor,
    input_batch: vllm_types.InputBatchV2,
    grammar_req_ids: list[str],
    grammar_bitmask: Any,
    *,
    original: Original,
) -> None:
    """Of V2's method. How many of its drafts a request has is known to the device alone where vLLM trims them."""
    most = self.mask_stride
    if not isinstance(grammar_bitmask, MaskRows):
        original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
        _warm(logits, grammar_bitmask.shape[1], input_batch.cu_num_logits, most)
        return
    place = {name: i * most for i, name in enumerate(input_batch.req_ids)}
    where = positions(grammar_bitmask.counts, [place.get(name, -1) for name in grammar_req_ids])
    table(logits.device).apply(logits, where, grammar_bitmask, input_batch.cu_num_logits, most)


_warmed: set[torch.device] = set()


def _warm(logits: torch.Tensor, words: int, starts: torch.Tensor, most_positions: int) -> None:
    """Launch the kernel on ``logits``, which stay as they are, behind the first bitmask of a device: vLLM's warm-up
    comes before anybody else. What goes wrong is only said. words: int32s of a mask row."""
    if logits.device.type == "cpu" or logits.device in _warmed or gpu_masks() == "off":
        return
    _warmed.add(logits.device)
    try:
        none = np.full(1, -1, np.int32)
        nothing = MaskRows(0, -none, none, none[:0], np.zeros((0, words), np.int32))
        table(logits.device).apply(logits, none, nothing, starts, most_positions)
    except Exception as error:
        logger.info("our kernel is compiled when it is first used: %s: %s", type(error).__name__, error)
