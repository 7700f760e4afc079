"""What a front-end process knows of its engine: vLLM parses requests without looking at the engine's configuration.

vLLM makes one ``InputProcessor`` in each process that takes requests, with the configuration of the engine it takes
them for. It is remembered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dotllm.compilation import Kind, Specification
from dotllm.vllm_plugin.engine_core import per_process, warm_start
from dotllm.vllm_plugin.frontend import reasoning_warning, validation_cache
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

_vllm_config: Any = None

HOOK = Hook(
    name="front-end",
    summary="the front end knows its engine's backend, and says at start which reasoning parser is missing",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="streams that are refused get HTTP 200 and an error event; the backend is taken for auto",
)


def remember(vllm_config: Any) -> None:
    """The engine that this process takes requests for."""
    global _vllm_config
    _vllm_config = vllm_config


def config() -> Any:
    """The engine's ``StructuredOutputsConfig``, None while there is no engine."""
    return None if _vllm_config is None else _vllm_config.structured_outputs_config


def model_config() -> Any:
    """The engine's ``ModelConfig``, None while there is no engine."""
    return getattr(_vllm_config, "model_config", None)


def serves(backend: str | None = None) -> bool:
    """Whether requests go to dotllm; ``backend`` is what vLLM has chosen for this one, if it has."""
    configured = config()
    return backend == BACKEND or is_ours(backend or ("auto" if configured is None else configured.backend))


def is_constrained(params: Any) -> bool:
    """Whether ``params`` (a ``SamplingParams``) have a constraint that dotllm enforces."""
    structured = getattr(params, "structured_outputs", None)
    if structured is None or structured.all_constraints_none() or config() is None:
        return False
    return serves(structured._backend)


def may_reason() -> bool:
    """Whether requests may say something before their constraint begins, and before it has been compiled."""
    return bool(getattr(config(), "reasoning_parser", ""))


def token_names() -> TokenNames | None:
    """The tokens of the engine's tokenizer that a specification may name, None while there is no engine."""
    if _vllm_config is None:
        return None
    from vllm.tokenizers import cached_tokenizer_from_config

    model_config = _vllm_config.model_config
    return per_process.token_names(cached_tokenizer_from_config(model_config=model_config), model_config)


def prepare(vllm_config: Any) -> None:
    """Warn of a reasoning parser that is missing; with one, load what checking a specification needs (`endpoints`)."""
    reasoning_warning.warn(vllm_config)
    if not may_reason():
        return
    for kind, text in ((Kind.JSON_SCHEMA, '{"type": "string", "pattern": "a"}'), (Kind.REGEX, "a")):
        validation_cache.check(Specification.create(kind, text))


@HOOK.replaces("vllm.v1.engine.input_processor:InputProcessor.__init__")
def _init_with(original: Any) -> Any:
    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        remember(vllm_config)
        warm_start.in_background(prepare, vllm_config)
        original(self, vllm_config, *args, **kwargs)

    return __init__
