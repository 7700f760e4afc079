"""H6, engine core's side: where workers keep a table, the manager gives out row numbers instead of a bitmask.

``StructuredOutputManager.grammar_bitmask`` has had one signature for all releases, and what it returns is only handed
on to the workers. Its inside, which this stands in for, has been rewritten often: it is left to vLLM wherever it does
more than fill masks (diffusion models), and asked which masks hold where a reasoning parser decides (`constrained`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.gpu_masks import worker_hooks
from dotllm.vllm_plugin.gpu_masks.constrained import FILLS, Stance, stances
from dotllm.vllm_plugin.hook import Hook, Target, replace_once
from dotllm.vllm_plugin.settings import gpu_masks

logger = logging.getLogger(__name__)


def why_not(manager: Any) -> str:
    """Why this engine's masks cannot live on the device; "" if they can."""
    from vllm.platforms import current_platform

    config = manager.vllm_config
    worker = str(config.parallel_config.worker_cls)
    chosen = gpu_masks()
    checks = (
        (chosen == "off", "switched off"),
        (chosen == "auto" and not current_platform.is_cuda_alike(), "not a CUDA device"),
        # (Some WSL: row numbers lie in the host's memory, where the kernel reads them.)
        (chosen == "auto" and not current_platform.is_pin_memory_available(), "no pinned memory"),
        (chosen == "auto" and not worker.startswith("vllm.v1.worker.gpu_worker."), f"the worker is {worker}"),
        (
            manager.reasoner_cls is not None and config.num_speculative_tokens > 0,
            "a reasoning parser decides where in the drafts constraints begin",
        ),
        (getattr(config.model_config, "is_diffusion", False), "the model is a diffusion model"),
    )
    return next((reason for applies, reason in checks if applies), "") or worker_hooks.why_not(config)


def message(
    manager: Any, requests: Any, ids: list[str], drafts: dict[str, list[int]], original: Callable[..., Any]
) -> Any:
    """The `MaskRows` of a step, or None where vLLM's own way, ``original``, is to be taken."""
    from dotllm.vllm_plugin.gpu_masks import rows

    backend = backend_of(manager)
    if not ids or backend is None:
        return None
    if backend.row_sender is None:
        reason = why_not(manager)
        logger.info("masks live on the device: %s", f"no ({reason})" if reason else "yes")
        backend.row_sender = False if reason else rows.RowSender(backend.token_space)
    if not backend.row_sender:
        return None
    if manager.reasoner_cls is not None:
        return _message_of(stances(manager, original, requests, ids), backend.row_sender)
    grammars = [requests[i].structured_output_request._grammar for i in ids]
    if not rows.are_ours(grammars):  # a compile that nobody has looked at since it ended, or others' grammars
        grammars = [requests[i].structured_output_request.grammar for i in ids]
        if not rows.are_ours(grammars):
            return None
    by_place = {place: drafts[i] for place, i in enumerate(ids) if drafts.get(i)} if drafts else None
    counts, found = rows.rows_of_step(grammars, by_place)
    return backend.row_sender.message(counts, found)


def _message_of(found: list[Stance] | None, sender: Any) -> Any:
    """The message for requests some of which are not constrained in this step."""
    from dotllm.vllm_plugin.gpu_masks import rows

    if found is None:
        return None
    places = [place for place, stance in enumerate(found) if stance.holds]
    ours = [found[place].grammar for place in places]
    slots = np.array([sender.forbidden.row(() if one.holds else one.forbidden) for one in found], np.int32)
    if ours:
        if not rows.are_ours(ours):
            return None
        slots[places] = rows.rows_of_step(ours)[1]
    return sender.message(np.ones(len(found), np.int32), slots)


def _apply() -> None:
    from vllm.v1.structured_output import StructuredOutputManager

    gpu_masks()
    worker_hooks.apply()
    replace_once(StructuredOutputManager, "accept_tokens", _accept_tokens_with)
    # Last: where one of those cannot be replaced, no row numbers are given out.
    replace_once(StructuredOutputManager, "grammar_bitmask", _grammar_bitmask_with)


def _grammar_bitmask_with(original: Any) -> Any:
    def grammar_bitmask(
        self: Any, requests: Any, structured_output_request_ids: list[str], scheduled_spec_decode_tokens: Any
    ) -> Any:
        try:
            found = message(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens, original)
        except Exception:
            # Bitmasks serve as well; workers take either, in any order.
            logger.exception("masks on the device: falling back to bitmasks for this step")
            found = None
        if found is not None:
            return found
        return original(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens)

    return grammar_bitmask


def _accept_tokens_with(original: Any) -> Any:
    """vLLM asks this for every request and token, and it takes several calls to come to a grammar (2 of 20 us a request
    and step): the answer is known where `batch_accept` has taken the token already, and for free requests."""

    def accept_tokens(self: Any, request: Any, new_token_ids: list[int]) -> bool:
        structured = request.structured_output_request
        if structured is None:
            return True
        grammar = structured._grammar
        if getattr(grammar, "followed", False) and not grammar.failed:
            return True
        return bool(original(self, request, new_token_ids))

    return accept_tokens


_MANAGER = "vllm.v1.structured_output"

HOOK = Hook(
    name="gpu-masks",
    summary="mask rows live in a table on the GPU; only row numbers travel",
    targets=(
        Target(
            _MANAGER,
            "StructuredOutputManager.grammar_bitmask",
            ("self", "requests", "structured_output_request_ids", "scheduled_spec_decode_tokens"),
        ),
        Target(_MANAGER, f"StructuredOutputManager.{FILLS}", ("self", "batch")),
        Target("vllm.platforms.interface", "Platform.is_pin_memory_available", ("cls",)),
        *worker_hooks.TARGETS,
    ),
    apply=_apply,
    required=False,
    without_it="masks are copied to the GPU in every step, as in vLLM",
)
