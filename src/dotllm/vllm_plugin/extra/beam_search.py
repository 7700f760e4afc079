"""Offline beam search (``LLM.beam_search``) under a constraint.

vLLM makes a backend by name and compiles the specification again for every beam and step. We give it our backend, in
which equal specifications share one index. (Online, vLLM's beam search silently drops the constraint, so such a request
is refused: `tools.constraints`.)
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.specification import of_params
from dotllm.vllm_plugin.vllm_types import StructuredOutputsParams, VllmConfig

_OFFLINE = "vllm.entrypoints.generate.beam_search.offline"

HOOK = Hook(
    summary="LLM.beam_search works with structured outputs",
    targets=[Target("vllm.v1.structured_output.request", "get_structured_output_key", ("params",))],
    without_it="LLM.beam_search with structured outputs fails",
)


@HOOK.replaces(f"{_OFFLINE}:BeamSearchOfflineMixin._init_beam_search_structured_output")
def _init_beam_search_structured_output(
    self: Any, structured_outputs: StructuredOutputsParams, tokenizer: object, *, original: Original
) -> Any:
    vllm_config: VllmConfig = self.llm_engine.vllm_config
    if not is_ours(vllm_config.structured_outputs_config.backend):
        return original(self, structured_outputs, tokenizer)
    from vllm.v1.structured_output.request import get_structured_output_key

    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    structured_outputs._backend = BACKEND
    backend = EngineBackend(
        vllm_config,
        searched=of_params(structured_outputs, vllm_config.structured_outputs_config),
        tokenizer=tokenizer,
        vocab_size=self.model_config.get_vocab_size(),
        # Before vLLM 0.33 the further end tokens of the model's generation config do not end a beam.
        ends_of_model=hasattr(importlib.import_module(_OFFLINE), "get_beam_search_eos_token_ids"),
    )
    return backend, get_structured_output_key(structured_outputs), backend.allocate_token_bitmask(1)
