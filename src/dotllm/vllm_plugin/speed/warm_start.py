"""Prepares everything that the engine needs for its first structured request while vLLM loads the model.

Loading Numba's compiled kernels takes a second (compiling them, once per machine, some seconds). So does making the
vocabulary of a tokenizer, and starting each process that compiles. The engine core prepares all of this in a thread
that it starts first; the front end prepares what it needs. The engine core is ready when the kernels are loaded
(`preparation`); the first constrained request waits for the rest.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.enforce import per_process
from dotllm.vllm_plugin.enforce.preparation import in_background, is_constraining, kernels_first
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import VllmConfig


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
    name="warm-start",
    summary="kernels and vocabulary are prepared while the model loads",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="the first structured request after a start takes some seconds longer",
)


# The engine core makes its executor right after it has loaded the plugins, and the executor loads the model.
@HOOK.replaces("vllm.v1.executor.abstract:Executor.__init__")
def _init(self: Any, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    has_core = not vllm_config.parallel_config.node_rank_within_dp  # others have only workers (``--headless``)
    if has_core and is_constraining(vllm_config):
        in_background(kernels_first(prepare_engine), vllm_config)
    original(self, vllm_config, *args, **kwargs)
