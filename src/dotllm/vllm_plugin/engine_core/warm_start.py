"""What the engine needs before its first structured request, prepared while vLLM loads the model.

Loading Numba's compiled kernels takes a fraction of a second (compiling them, once per machine, some seconds) and the
vocabulary of a tokenizer as long, the processes that compile a second each. The engine core prepares all of this in a
thread that it starts first; the front end prepares what it needs. The first request waits for what is not ready yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from dotllm.system import background
from dotllm.vllm_plugin.engine_core import per_process
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.vllm_types import VllmConfig

logger = logging.getLogger(__name__)


def prepare_engine(vllm_config: VllmConfig) -> None:
    """Load the kernels, and make the vocabulary of the engine's tokenizer with its tables for popular sets; load what
    the shared store needs (s3fs is a second of imports); start the processes that compile."""
    from vllm.tokenizers import cached_tokenizer_from_config

    from dotllm.api import Index
    from dotllm.compilation import CompilationOptions
    from dotllm.compilation import compiler as engine
    from dotllm.compilation.cache.transports import open_transport

    model_config = vllm_config.model_config
    tokens = per_process.vocabulary_of_model(cached_tokenizer_from_config(model_config=model_config), model_config)
    tokens.prepare()
    engine.prepare()
    Index.from_choice(["a"], tokens).guide().mask_row  # noqa: B018  # computing the mask is the point
    import dotllm.vllm_plugin.engine_core.backend  # noqa: F401  # what the first request would import

    options = CompilationOptions.from_environment()
    if options.store:
        open_transport(options.store, options.store_timeout)
    per_process.compiler(tokens).start_processes()


def in_background(prepare: Callable[[VllmConfig], None], vllm_config: VllmConfig) -> None:
    """Run ``prepare(vllm_config)`` in a thread, if this engine is ours; a failure is logged."""
    config = vllm_config.structured_outputs_config
    if not is_ours(config.backend) or vllm_config.model_config.skip_tokenizer_init:
        return

    def run() -> None:
        started = time.monotonic()
        try:
            prepare(vllm_config)
        except Exception:
            # Not lost: the first request does the same work, and fails with the same error if there is one.
            logger.warning("dotllm could not get ready ahead of the first request", exc_info=True)
        else:
            logger.info("dotllm: %s done in %.1f s", prepare.__name__, time.monotonic() - started)

    background.run(run, "dotllm-prepare")


HOOK = Hook(
    name="warm-start",
    summary="kernels and vocabulary are prepared while the model loads",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="the first structured request after a start takes some seconds longer",
)


# The engine core makes its executor right after it has loaded the plugins, and the executor loads the model.
@HOOK.replaces("vllm.v1.executor.abstract:Executor.__init__")
def _init(self: Any, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    in_background(prepare_engine, vllm_config)
    original(self, vllm_config, *args, **kwargs)
