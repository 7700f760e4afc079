"""Offline beam search (``LLM.beam_search``) under a constraint.

vLLM's backends compile for every beam and step; in ours, all share one index. (Online, `tools.constraints` refuses it.)
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.specification import of_params
from dotllm.vllm_plugin.vllm_types import StructuredOutputsConfig, StructuredOutputsParams

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
    config: StructuredOutputsConfig = self.llm_engine.vllm_config.structured_outputs_config
    if not is_ours(config.backend):
        return original(self, structured_outputs, tokenizer)
    from vllm.sampling_params import SamplingParams
    from vllm.v1.structured_output.request import get_structured_output_key

    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    asked = SamplingParams(structured_outputs=structured_outputs)
    asked._validate_structured_outputs(self.model_config, config, tokenizer)  # as `LLM.generate` does
    backend = EngineBackend(
        self.llm_engine.vllm_config,
        searched=of_params(structured_outputs, config),
        tokenizer=tokenizer,
        vocab_size=self.model_config.get_vocab_size(),
        # Before vLLM 0.33 the further end tokens of the model's generation config do not end a beam.
        ends_of_model=hasattr(importlib.import_module(_OFFLINE), "get_beam_search_eos_token_ids"),
    )
    return backend, get_structured_output_key(structured_outputs), backend.allocate_token_bitmask(1)
