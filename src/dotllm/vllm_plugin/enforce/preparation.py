"""An engine core says that it is ready once its kernels are loaded.

Compiling them takes minutes on a busy machine, and a constrained request arriving meanwhile would stall the engine's
loop, and so all other requests, until the kernels are compiled.
"""

from __future__ import annotations

import logging
import threading

from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.vllm_types import VllmConfig

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 400.0
"""How many seconds a start waits for kernels at most; vLLM gives its engine 600 s to start."""

loaded: threading.Event | None = None
"""Set once a thread of this engine core has loaded the kernels (`warm_start`); None if no thread does."""


def is_constraining(vllm_config: VllmConfig) -> bool:
    """Whether this engine is ours and generates text."""
    config, model = vllm_config.structured_outputs_config, vllm_config.model_config
    return is_ours(config.backend) and not model.skip_tokenizer_init and model.runner_type != "pooling"


def wait_for_kernels(vllm_config: VllmConfig) -> None:
    """Return when the kernels are loaded. If no thread loads them (the tier speed is off), load them only if some were
    never compiled; else the first constrained request does."""
    if not is_constraining(vllm_config):
        return
    if loaded is not None:
        if not loaded.wait(LONGEST_WAIT_S):
            logger.warning(
                "dotllm: the kernels are not compiled after %.0f s; the server starts, and its first constrained "
                "request holds up all others until they are compiled (to avoid this, run `dotllm warmup` first)",
                LONGEST_WAIT_S,
            )
        return
    from dotllm import jit

    if jit.missing_groups():
        try:
            from dotllm.compilation import compiler

            compiler.prepare()
        except Exception:
            logger.warning("dotllm could not compile its kernels: the first request tries again", exc_info=True)
