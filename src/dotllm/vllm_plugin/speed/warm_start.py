"""Prepares everything that the engine needs for its first constrained request while vLLM loads the model.

Loading Numba's compiled kernels takes a second (compiling them, once per machine, about a minute). Making the
vocabulary of a tokenizer takes about as long, and so does starting each compile process. The engine core prepares all
of this in a thread that it starts first; the front end prepares what it needs. The engine core is ready when the
kernels are loaded (`preparation`); the first constrained request waits for the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from dotllm import system
from dotllm.vllm_plugin.enforce import per_process, preparation
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import VllmConfig

logger = logging.getLogger(__name__)


def in_background(prepare: Callable[[VllmConfig], None], vllm_config: VllmConfig) -> None:
    """Run ``prepare(vllm_config)`` in a thread, if this engine `is_constraining`; a failure is logged."""
    if not preparation.is_constraining(vllm_config):
        return

    def run() -> None:
        started = time.monotonic()
        try:
            prepare(vllm_config)
        except Exception:
            # Not lost: the first request does the same work, and fails with the same error if there is one.
            logger.warning("dotllm could not prepare: the first constrained request tries again", exc_info=True)
        else:
            logger.info("dotllm: %s done in %.1f s", prepare.__name__, time.monotonic() - started)

    system.run_in_background(run, "dotllm-prepare")


def kernels_and_engine(vllm_config: VllmConfig) -> None:
    """Load the kernels, for which this engine core waits, and then `prepare_engine`."""
    try:
        from dotllm.compilation import compiler

        compiler.prepare()
    finally:
        if preparation.loaded is not None:
            preparation.loaded.set()
    prepare_engine(vllm_config)


def prepare_engine(vllm_config: VllmConfig) -> None:
    """Make the vocabulary of the engine's tokenizer with its tables for popular sets; load what the shared store needs
    (importing s3fs takes a second); start the processes that compile."""
    from vllm.tokenizers import cached_tokenizer_from_config

    from dotllm.api import Index
    from dotllm.compilation import CompilationOptions
    from dotllm.compilation.store import open_transport

    model_config = vllm_config.model_config
    tokens = per_process.vocabulary_of_model(cached_tokenizer_from_config(model_config=model_config), model_config)
    tokens.prepare()
    Index.from_choice(["a"], tokens).guide().mask_row  # noqa: B018  # computing the mask is the point
    # What the first request would import:
    from dotllm.vllm_plugin.enforce import backend  # noqa: F401
    from dotllm.vllm_plugin.speed import rows  # noqa: F401

    options = CompilationOptions.from_environment()
    if options.store:
        open_transport(options.store, options.store_timeout)
    per_process.compiler(tokens).start_processes()


HOOK = Hook(
    summary="kernels and vocabulary are prepared while the model loads",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="the first constrained request after a start takes some seconds longer",
)


# The engine core makes its executor right after it has loaded the plugins, and the executor loads the model.
@HOOK.replaces("vllm.v1.executor.abstract:Executor.__init__")
def _init(self: Any, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    has_core = not vllm_config.parallel_config.node_rank_within_dp  # others have only workers (``--headless``)
    if has_core and preparation.is_constraining(vllm_config):
        preparation.loaded = threading.Event()
        in_background(kernels_and_engine, vllm_config)
    original(self, vllm_config, *args, **kwargs)
