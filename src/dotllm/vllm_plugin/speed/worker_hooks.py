"""The workers' side: applies `MaskRows`, a message in place of a bitmask, from the table; leaves anything else to vLLM.

Both model runners call something named ``apply_grammar_bitmask``: V1 a function, V2 a method of the object that holds
its buffers.

Triton compiles a kernel at its first launch, and a batch would wait some 0.3 s for that. So we launch our kernel once,
to mask nothing, in the warm-up of the V2 runner, right after vLLM masks the logits of dummy requests with a bitmask.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.device_masks.message import MaskRows, positions
from dotllm.vllm_plugin import settings, vllm_types
from dotllm.vllm_plugin.hook import Hook, Original

if TYPE_CHECKING:
    import torch

    from dotllm.device_masks.mask_table import MaskTable

logger = logging.getLogger(__name__)

HOOK = Hook(
    summary="a worker keeps the mask rows in a table on its device, and applies the rows whose numbers it receives",
    without_it="a worker would not know the row numbers that the engine core sends (which checks this hook, too)",
)

_TABLE = "_dotllm_mask_table"  # attribute of what a model runner keeps for as long as it lives


def table(holder: object, device: torch.device) -> MaskTable:
    """The `MaskTable` of a model runner: a process may have several runners, of several engines, on one device."""
    from dotllm.device_masks.mask_table import MaskTable

    made: MaskTable | None = getattr(holder, _TABLE, None)
    if made is None or made.device != device:
        made = MaskTable(device)
        setattr(holder, _TABLE, made)
    return made


def rows_v1(
    names: list[str], counts: Int32 | None, batch: vllm_types.InputBatchV1, step: vllm_types.SchedulerOutput
) -> Int32:
    """int32 [sum(counts)]: the row of logits of each position of these requests in V1's batch; below 0: there is none.
    counts: int32 [names], how many positions each has; None: one each."""
    drafts = step.scheduled_spec_decode_tokens
    first, at = {}, 0
    for name in batch.req_ids:
        first[name] = at
        at += 1 + len(drafts.get(name, ()))
    # The runner may have trimmed drafts since the masks were found (ngram_gpu): it has no logits for trimmed drafts.
    most = None if counts is None else [1 + len(drafts.get(name, ())) for name in names]
    return positions(counts, [first.get(name, -1) for name in names], most)


def rows_v2(names: list[str], counts: Int32 | None, batch: vllm_types.InputBatchV2, most: int) -> Int32:
    """The same for V2's batch, whose requests have up to ``most`` rows: request * most + position. If vLLM trims
    drafts, only the device knows how many a request has."""
    if names == batch.req_ids:
        return positions(counts, np.arange(0, most * len(names), most, np.int32))
    place = {name: i * most for i, name in enumerate(batch.req_ids)}
    return positions(counts, [place.get(name, -1) for name in names])


@HOOK.replaces("vllm.v1.structured_output.utils:apply_grammar_bitmask")
def v1(
    scheduler_output: vllm_types.SchedulerOutput,
    grammar_output: vllm_types.GrammarOutput,
    input_batch: vllm_types.InputBatchV1,
    logits: torch.Tensor,
    *,
    original: Original,
) -> None:
    """The replacement for V1's function."""
    message = grammar_output.grammar_bitmask
    if not isinstance(message, MaskRows):
        original(scheduler_output, grammar_output, input_batch, logits)
        return
    names, drafts = grammar_output.structured_output_request_ids, scheduler_output.scheduled_spec_decode_tokens
    in_order = message.counts is None and not drafts and names == input_batch.req_ids
    where = None if in_order else rows_v1(names, message.counts, input_batch, scheduler_output)
    table(input_batch, logits.device).apply(logits, where, message)


@HOOK.replaces("vllm.v1.worker.gpu.structured_outputs:StructuredOutputsWorker.apply_grammar_bitmask")
def v2(
    self: vllm_types.StructuredOutputsWorker,
    logits: torch.Tensor,
    input_batch: vllm_types.InputBatchV2,
    grammar_req_ids: list[str],
    grammar_bitmask: Any,
    *,
    original: Original,
) -> None:
    """The replacement for V2's method."""
    most = self.mask_stride
    if not isinstance(grammar_bitmask, MaskRows):
        original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
        _warm(self, logits, grammar_bitmask.shape[1], input_batch.cu_num_logits, most)
        return
    counts = grammar_bitmask.counts
    in_order = counts is None and grammar_req_ids == input_batch.req_ids
    where = None if in_order else rows_v2(grammar_req_ids, counts, input_batch, most)
    table(self, logits.device).apply(logits, where, grammar_bitmask, input_batch.cu_num_logits, most)


_warmed: set[torch.device] = set()


def _warm(holder: object, logits: torch.Tensor, words: int, starts: torch.Tensor, most_positions: int) -> None:
    """Launch the kernel on ``logits``, which stay as they are, after the first bitmask of a device (which is vLLM's
    warm-up). Errors are only logged. words: the number of int32s of a mask row."""
    if logits.device.type == "cpu" or logits.device in _warmed or settings.value(settings.GPU_MASKS) == "off":
        return
    _warmed.add(logits.device)
    try:
        none = np.full(1, -1, np.int32)
        nothing = MaskRows(0, None, none, none, none[:0], np.zeros((0, words), np.int32))
        table(holder, logits.device).apply(logits, none, nothing, starts, most_positions)
    except Exception as error:
        logger.info("dotllm: the mask kernel is compiled when it is first used: %s: %s", type(error).__name__, error)
