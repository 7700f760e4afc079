"""Beam search under a constraint.

Offline (``LLM.beam_search``), vLLM makes a backend by name and compiles the specification again for every beam and
step: we hand it our backend, whose equal specifications share one index. Online, vLLM's beam search drops the
constraint without a word and answers with free text, so such a request is refused: a constraint is enforced or
refused.
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import unsupported_fields
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours

_OFFLINE = "vllm.entrypoints.generate.beam_search.offline"
_OPENAI = "vllm.entrypoints.openai"

HOOK = Hook(
    name="beam-search",
    summary="LLM.beam_search with structured outputs; online, use_beam_search with a constraint is refused",
    targets=(
        Target("vllm.v1.structured_output.request", "get_structured_output_key", ("params",)),
        Target(f"{_OPENAI}.chat_completion.protocol", "ChatCompletionRequest.response_format"),
        Target(f"{_OPENAI}.completion.protocol", "CompletionRequest.response_format"),
    ),
    without_it="LLM.beam_search with structured outputs fails, and online beam search ignores them without a word",
)


def _beams_know_all_ends() -> bool:
    """Whether a beam ends with any token that the model's generation config names (vLLM 0.33 and later), or with the
    tokenizer's own EOS alone."""
    return hasattr(importlib.import_module(_OFFLINE), "get_beam_search_eos_token_ids")


@HOOK.replaces(f"{_OFFLINE}:BeamSearchOfflineMixin._init_beam_search_structured_output")
def _init_beam_search_structured_output_with(original: Any) -> Any:
    def _init_beam_search_structured_output(self: Any, structured_outputs: Any, tokenizer: Any) -> Any:
        vllm_config = self.llm_engine.vllm_config
        config = vllm_config.structured_outputs_config
        if config is None or not is_ours(config.backend):
            return original(self, structured_outputs, tokenizer)
        from vllm.v1.structured_output.request import get_structured_output_key

        from dotllm.vllm_plugin.engine_core.backend import DotllmBackend

        structured_outputs._backend = BACKEND
        backend = DotllmBackend(
            vllm_config,
            tokenizer=tokenizer,
            vocab_size=self.model_config.get_vocab_size(),
            ends_of_model=_beams_know_all_ends(),
        )
        return backend, get_structured_output_key(structured_outputs), backend.allocate_token_bitmask(1)

    return _init_beam_search_structured_output


def constraint_of(request: Any) -> str | None:
    """The field of an OpenAI request that constrains its output, or None."""
    response_format = request.response_format
    if response_format is not None and getattr(response_format, "type", "text") != "text":
        return "response_format"
    structured = request.structured_outputs
    if structured is not None and not structured.all_constraints_none():
        return "structured_outputs"
    return None


@HOOK.replaces(
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_beam_search_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_beam_search_params",
)
def _to_beam_search_params_with(original: Any) -> Any:
    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        unsupported_fields.refuse(self)
        field = constraint_of(self)
        if field is not None:
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(
                f"use_beam_search together with {field} is refused: online beam search does not constrain its text"
            )
        return original(self, *args, **kwargs)

    return to_beam_search_params
