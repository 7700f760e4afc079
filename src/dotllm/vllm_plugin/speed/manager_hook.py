"""The engine core's side: finds the masks of a step in one call for the batch. Where workers keep a table, the manager
returns row numbers instead of a bitmask.

``StructuredOutputManager.grammar_bitmask`` has had the same signature in all releases, and its result is only passed on
to the workers. Where it does more than fill masks (diffusion models), it is left to vLLM.
"""

from __future__ import annotations

import logging
from typing import Any

from dotllm.arrays import Int32
from dotllm.device_masks.message import MaskRows
from dotllm.vllm_plugin import releases, settings
from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.scheduler import BATCH, takes_part
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.speed import worker_hooks
from dotllm.vllm_plugin.speed.batch_accept import BatchAccept
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager

logger = logging.getLogger(__name__)


def _require_workers_that_take_rows() -> None:
    worker_hooks.HOOK.check()
    takes_part(BATCH, BatchAccept)()


HOOK = Hook(
    summary="one call finds the masks of a step, another lets all grammars accept its tokens, and a third validates "
    "drafts; on GPUs masks are in a table, and only row numbers are sent",
    targets=(
        Target("vllm.platforms.interface", "Platform.is_pin_memory_available", ("cls",)),
        Target("vllm.v1.structured_output.utils", "strip_speculative_padding", ("token_ids",)),
    ),
    apply=_require_workers_that_take_rows,
    without_it="vLLM asks grammars one after another, and copies masks in every step; answers do not end within "
    "max_tokens",
)


def why_not(manager: StructuredOutputManager) -> str:
    """Why this engine's masks cannot live on the device; "" if they can."""
    from vllm.platforms import current_platform

    config, chosen = manager.vllm_config, settings.value(settings.GPU_MASKS)
    worker = str(config.parallel_config.worker_cls)
    checks = (
        (chosen == "off", "switched off"),
        (chosen == "auto" and not current_platform.is_cuda_alike(), "not a CUDA device"),
        # (Some WSL has none. The kernel reads row numbers from pinned host memory.)
        (chosen == "auto" and not current_platform.is_pin_memory_available(), "no pinned memory"),
        (chosen == "auto" and not worker.startswith("vllm.v1.worker.gpu_worker."), f"the worker is {worker}"),
        (
            config.use_v2_model_runner and config.parallel_config.enable_batch_sharded_sampling,
            "each tensor-parallel rank samples a part of the batch (--enable-batch-sharded-sampling)",
        ),
    )
    return next((reason for applies, reason in checks if applies), "")


def message(
    manager: StructuredOutputManager, requests: dict[str, Request], ids: list[str], drafts: dict[str, list[int]]
) -> MaskRows | Int32 | None:
    """The masks of a step, or None if vLLM is to find them itself."""
    from dotllm.device_masks.sender import Bitmasks, RowSender
    from dotllm.index.token_space import TokenSpace
    from dotllm.vllm_plugin.speed import rows

    backend = backend_of(manager)
    config = manager.vllm_config
    if not ids or backend is None or config.model_config.is_diffusion:
        return None
    if backend.step_masks is None:
        reason = why_not(manager)
        logger.info("masks live on the device: %s", f"no ({reason})" if reason else "yes")
        # Since 0.33 each request has a block of the bitmask's rows.
        block = 1 + config.num_speculative_tokens if releases.is_since("0.33") else 0
        space = TokenSpace.of(backend.vocabulary)  # the table of mask rows that all grammars share
        backend.step_masks = Bitmasks(space, block) if reason else RowSender(space)
    asked = [requests[name] for name in ids]
    return rows.message_of(manager, backend.step_masks, asked, [drafts.get(name, ()) for name in ids] if drafts else ())


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.grammar_bitmask")
def _grammar_bitmask(
    self: StructuredOutputManager,
    requests: dict[str, Request],
    structured_output_request_ids: list[str],
    scheduled_spec_decode_tokens: dict[str, list[int]],
    *,
    original: Original,
) -> Any:
    try:
        result = message(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens)
    except Exception:
        # Bitmasks enforce the constraint, too, but no limit; workers take either form, in any order.
        logger.exception("could not find the masks of a step in one call: vLLM finds those of this step")
        result = None
    if result is not None:
        return result
    return original(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.accept_tokens")
def _accept_tokens(
    self: StructuredOutputManager, request: Request, new_token_ids: list[int], *, original: Original
) -> bool:
    """Call no grammar if the answer is known: after `batch_accept.accept`, and for a request without a constraint."""
    structured = request.structured_output_request
    if structured is None:
        return True
    grammar = structured._grammar
    if getattr(grammar, "accepted_ahead", False) and not grammar.failed:
        return True
    return bool(original(self, request, new_token_ids))
