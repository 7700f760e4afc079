"""H6, workers' side: a `MaskRows` message in place of a bitmask is applied from the table; anything else is vLLM's.

Both model runners call something named ``apply_grammar_bitmask``: V1 a function, V2 a method of the object that holds
its buffers.
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import Any

from dotllm.vllm_plugin.gpu_masks.logits_rows import RowsOfLogits, positions
from dotllm.vllm_plugin.gpu_masks.message import MaskRows
from dotllm.vllm_plugin.gpu_masks.warm_kernels import try_to_warm
from dotllm.vllm_plugin.hook import Target, replace_once
from dotllm.vllm_plugin.settings import gpu_masks

logger = logging.getLogger(__name__)

V1_FUNCTION = "vllm.v1.structured_output.utils"
V1_RUNNER = "vllm.v1.worker.gpu_model_runner"
V2_MODULE = "vllm.v1.worker.gpu.structured_outputs"
_V1_PARAMETERS = ("scheduler_output", "grammar_output", "input_batch", "logits")
_V2_PARAMETERS = ("self", "logits", "input_batch", "grammar_req_ids", "grammar_bitmask")

TARGETS = (
    Target(V1_FUNCTION, "apply_grammar_bitmask", _V1_PARAMETERS),
    Target(V2_MODULE, "StructuredOutputsWorker.apply_grammar_bitmask", _V2_PARAMETERS),
)

_faults = {"V1": "not applied", "V2": "not applied"}


def why_not(config: Any) -> str:
    """Why the model runner of this engine cannot take our messages; "" if it can."""
    v2 = bool(getattr(config, "use_v2_model_runner", False))
    fault = _faults["V2" if v2 else "V1"]
    if fault:
        return f"the {'V2' if v2 else 'V1'} model runner: {fault}"
    if not v2:
        return ""
    if shards_batch(config.parallel_config):
        return "each tensor-parallel rank samples a part of the batch (--enable-batch-sharded-sampling)"
    if config.num_speculative_tokens and _trims_drafts():
        return "this vLLM's V2 model runner places logits on the device when it speculates"
    return ""


def shards_batch(parallel: Any) -> bool:
    """Whether each tensor-parallel rank samples requests of its own (an option of vLLM)."""
    return bool(getattr(parallel, "enable_batch_sharded_sampling", False))


def _trims_drafts() -> bool:
    from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

    return "mask_stride" in inspect.signature(StructuredOutputsWorker.__init__).parameters


def apply() -> None:
    """Wrap both. What does not fit is kept as a reason for `why_not`."""
    for name, wrap in (("V1", _wrap_v1), ("V2", _wrap_v2)):
        try:
            wrap()
        except Exception as error:  # whatever a foreign version of vLLM makes of it
            _faults[name] = f"{type(error).__name__}: {error}"
        else:
            _faults[name] = ""


def _wrap_v1() -> None:
    from vllm.v1.structured_output import utils

    replace_once(utils, "apply_grammar_bitmask", _v1_with)
    runner = sys.modules.get(V1_RUNNER)
    if runner is not None:  # it has imported the function by name
        runner.apply_grammar_bitmask = utils.apply_grammar_bitmask  # type: ignore[attr-defined]


def _v1_with(original: Any) -> Any:
    without_drafts = RowsOfLogits()

    def apply_grammar_bitmask(scheduler_output: Any, grammar_output: Any, input_batch: Any, logits: Any) -> None:
        message = grammar_output.grammar_bitmask
        if not isinstance(message, MaskRows):
            original(scheduler_output, grammar_output, input_batch, logits)
            return
        drafts = scheduler_output.scheduled_spec_decode_tokens
        ids = grammar_output.structured_output_request_ids
        if drafts:
            first, at = {}, 0
            for request in input_batch.req_ids:
                first[request] = at
                at += 1 + len(drafts.get(request, ()))
            where = positions(message.counts, [first.get(i, -1) for i in ids])
        else:
            where = without_drafts(ids, input_batch.req_ids)
        table(logits.device).apply(logits, where, message)

    return apply_grammar_bitmask


def _wrap_v2() -> None:
    from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

    replace_once(StructuredOutputsWorker, "apply_grammar_bitmask", _v2_with)


def _v2_with(original: Any) -> Any:
    without_drafts = RowsOfLogits()

    def apply_grammar_bitmask(
        self: Any, logits: Any, input_batch: Any, grammar_req_ids: list[str], grammar_bitmask: Any
    ) -> None:
        if not isinstance(grammar_bitmask, MaskRows):
            original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
            if not _warmed and logits.device.type != "cpu" and not input_batch.num_draft_tokens:
                _warmed.append(True)  # (vLLM's warm-up comes before anybody else)
                if gpu_masks() != "off":
                    try_to_warm(logits, grammar_bitmask.shape[1])
            return
        if input_batch.num_draft_tokens:
            first = dict(zip(input_batch.req_ids, input_batch.cu_num_logits_np.tolist(), strict=False))
            where = positions(grammar_bitmask.counts, [first[i] for i in grammar_req_ids])
        else:
            where = without_drafts(grammar_req_ids, input_batch.req_ids)
        table(logits.device).apply(logits, where, grammar_bitmask)

    return apply_grammar_bitmask


_warmed: list[bool] = []

# one model runner a process and device
_tables: dict[Any, Any] = {}


def table(device: Any) -> Any:
    """The `mask_table.MaskTable` of a device."""
    from dotllm.vllm_plugin.gpu_masks.mask_table import MaskTable

    if device not in _tables:
        _tables[device] = MaskTable(device)
    return _tables[device]
