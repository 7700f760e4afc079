"""What a front-end process knows of its engine: vLLM parses requests without looking at the engine's configuration.

vLLM makes one ``InputProcessor`` in each process that takes requests, with the configuration of the engine it takes
them for. It is remembered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from dotllm.compilation import Kind, Specification, validation_cache
from dotllm.vllm_plugin.engine_core import per_process, warm_start
from dotllm.vllm_plugin.frontend import reasoning_warning
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.specification import ConstrainedParams
from dotllm.vllm_plugin.vllm_types import ModelConfig, SamplingParams, StructuredOutputsConfig, VllmConfig

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

_vllm_config: VllmConfig | None = None

HOOK = Hook(
    name="front-end",
    summary="the front end knows its engine's backend, and says at start which reasoning parser is missing",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="streams that are refused get HTTP 200 and an error event; the backend is taken for auto",
)


def remember(vllm_config: VllmConfig | None) -> None:
    """The engine that this process takes requests for."""
    global _vllm_config
    _vllm_config = vllm_config


def config() -> StructuredOutputsConfig | None:
    """The engine's, None while there is no engine."""
    return None if _vllm_config is None else _vllm_config.structured_outputs_config


def serves(backend: str | None = None) -> bool:
    """Whether requests go to dotllm; ``backend`` is what vLLM has chosen for this one, if it has."""
    configured = config()
    return backend == BACKEND or is_ours(backend or ("auto" if configured is None else configured.backend))


def is_constrained(params: SamplingParams | None) -> TypeGuard[ConstrainedParams]:
    """Whether ``params`` have a constraint that dotllm enforces."""
    structured = None if params is None or config() is None else params.structured_outputs
    return structured is not None and not structured.all_constraints_none() and serves(structured._backend)


def may_reason() -> bool:
    """Whether requests may say something before their constraint begins, and before it has been compiled."""
    configured = config()
    return configured is not None and bool(configured.reasoning_parser)


def token_names() -> TokenNames | None:
    """The tokens of the engine's tokenizer that a specification may name, None while there is no engine."""
    return None if _vllm_config is None else per_process.token_names(*tokenizer_and_model())


def tokenizer_and_model() -> tuple[Any, ModelConfig]:
    """The engine's."""
    from vllm.tokenizers import cached_tokenizer_from_config

    assert _vllm_config is not None, "vLLM makes an engine before it takes requests"
    model_config = _vllm_config.model_config
    return cached_tokenizer_from_config(model_config=model_config), model_config


def prepare(vllm_config: VllmConfig) -> None:
    """Warn of a reasoning parser that is missing; with one, load what checking a specification needs (`endpoints`)."""
    reasoning_warning.warn(vllm_config)
    if may_reason():
        for kind, text in ((Kind.JSON_SCHEMA, '{"type": "string", "pattern": "a"}'), (Kind.REGEX, "a")):
            validation_cache.check(Specification.create(kind, text))


@HOOK.replaces("vllm.v1.engine.input_processor:InputProcessor.__init__")
def _init(self: object, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    remember(vllm_config)
    warm_start.in_background(prepare, vllm_config)
    original(self, vllm_config, *args, **kwargs)
