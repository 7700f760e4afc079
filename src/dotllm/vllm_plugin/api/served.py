"""What an endpoint asks about the engine that serves its request (`engine_info`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from dotllm.vllm_plugin.enforce import engine_info, per_process
from dotllm.vllm_plugin.specification import ConstrainedParams
from dotllm.vllm_plugin.vllm_types import ModelConfig

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames


def is_constrained(params: object) -> TypeGuard[ConstrainedParams]:
    """Whether ``params`` have a constraint that dotllm enforces; those of pooling models have none."""
    structured = getattr(params, "structured_outputs", None)
    if not structured or structured.all_constraints_none() or engine_info.config() is None:
        return False
    return engine_info.serves(structured._backend)


def may_reason() -> bool:
    """Whether requests may generate text before their constraint begins, and before it has been compiled."""
    configured = engine_info.config()
    return configured is not None and bool(configured.reasoning_parser)


def token_names() -> TokenNames | None:
    """The tokens of the engine's tokenizer that a specification may name; None before there is an engine."""
    return None if engine_info.configuration() is None else per_process.token_names(*tokenizer_and_model())


def tokenizer_and_model() -> tuple[Any, ModelConfig]:
    """The engine's tokenizer and model configuration."""
    from vllm.tokenizers import cached_tokenizer_from_config

    vllm_config = engine_info.configuration()
    assert vllm_config is not None, "vLLM makes an engine before it takes requests"
    model_config = vllm_config.model_config
    return cached_tokenizer_from_config(model_config=model_config), model_config
