"""Prepares, in a thread, what an engine or a front end needs for its first constrained request.

An engine core says that it is ready once its kernels are loaded (`wait_for_kernels`). Compiling them takes minutes on a
busy machine, and a constrained request that came meanwhile would stop the engine's loop, and so all other requests,
until the kernels are compiled. Nothing waits for the rest, which takes a second.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable

from dotllm import system
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.vllm_types import VllmConfig

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 400.0
"""The most seconds that a start waits for kernels; vLLM gives its engine 600 s to start."""

_loading: threading.Event | None = None
"""Set once the thread of this engine core has loaded the kernels; None if no thread does."""


def is_constraining(vllm_config: VllmConfig) -> bool:
    """Whether this engine is ours and generates text."""
    config, model = vllm_config.structured_outputs_config, vllm_config.model_config
    return is_ours(config.backend) and not model.skip_tokenizer_init and model.runner_type != "pooling"


def kernels_first(prepare: Callable[[VllmConfig], None]) -> Callable[[VllmConfig], None]:
    """Wrap ``prepare``: load the kernels first, for which `wait_for_kernels` waits in this process."""
    global _loading
    loaded = _loading = threading.Event()

    @functools.wraps(prepare)
    def load_and_prepare(vllm_config: VllmConfig) -> None:
        try:
            _load_kernels()
        finally:
            loaded.set()
        prepare(vllm_config)

    return load_and_prepare


def wait_for_kernels(vllm_config: VllmConfig) -> None:
    """Return when the kernels are loaded. If no thread loads them (the tier speed is off), load them only if some were
    never compiled; else the first constrained request does."""
    if not is_constraining(vllm_config):
        return
    if _loading is not None:
        if not _loading.wait(LONGEST_WAIT_S):
            logger.warning(
                "dotllm: the kernels are not compiled after %.0f s; the server starts, and its first constrained "
                "request holds up all others until they are compiled (run `dotllm warmup` first)",
                LONGEST_WAIT_S,
            )
        return
    from dotllm import jit

    if jit.missing_groups():
        try:
            _load_kernels()
        except Exception:
            logger.warning("dotllm could not compile its kernels ahead of the first request", exc_info=True)


def _load_kernels() -> None:
    from dotllm.compilation import compiler as engine

    engine.prepare()


def in_background(prepare: Callable[[VllmConfig], None], vllm_config: VllmConfig) -> None:
    """Run ``prepare(vllm_config)`` in a thread, if this engine `is_constraining`; a failure is logged."""
    if not is_constraining(vllm_config):
        return

    def run() -> None:
        started = time.monotonic()
        try:
            prepare(vllm_config)
        except Exception:
            # Not lost: the first request does the same work, and fails with the same error if there is one.
            logger.warning("dotllm could not prepare for the first request", exc_info=True)
        else:
            logger.info("dotllm: %s done in %.1f s", prepare.__name__, time.monotonic() - started)

    system.run_in_background(run, "dotllm-prepare")
