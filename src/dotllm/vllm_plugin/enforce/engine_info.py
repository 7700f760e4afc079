"""What a front-end process knows about its engines: vLLM parses requests without reading the engine's configuration.

vLLM makes one ``InputProcessor`` in each process that takes requests, with the configuration of their engine. This
module remembers that configuration. A process may have several engines; `of` selects the one that serves a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeGuard

from dotllm.vllm_plugin.enforce import per_process
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.specification import ConstrainedParams
from dotllm.vllm_plugin.vllm_types import ModelConfig, StructuredOutputsConfig, VllmConfig

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

_last: VllmConfig | None = None
_of_request: ContextVar[VllmConfig | None] = ContextVar("dotllm_engine", default=None)

HOOK = Hook(
    name="front-end",
    summary="the front end knows its engine's backend",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="streams that are refused get HTTP 200 and an error event; the backend is assumed to be auto",
)


def remember(vllm_config: VllmConfig | None) -> None:
    """Remember the engine that this process takes requests for; of several, the last."""
    global _last
    _last = vllm_config


@contextmanager
def of(engine: Any) -> Iterator[None]:
    """While a request to ``engine`` (vLLM's client of it; None: unknown) is served, this module describes it."""
    before = _of_request.set(getattr(engine, "vllm_config", None) or _of_request.get())
    try:
        yield
    finally:
        _of_request.reset(before)


def configuration() -> VllmConfig | None:
    """The engine's whole configuration, None without an engine."""
    return _of_request.get() or _last


def config() -> StructuredOutputsConfig | None:
    """The engine's structured-outputs configuration, None while there is no engine."""
    vllm_config = configuration()
    return None if vllm_config is None else vllm_config.structured_outputs_config


def serves(backend: str | None = None) -> bool:
    """Whether requests go to dotllm. ``backend``: the one that vLLM has chosen for this request, if it has."""
    configured = config()
    return backend == BACKEND or is_ours(backend or ("auto" if configured is None else configured.backend))


def is_constrained(params: object) -> TypeGuard[ConstrainedParams]:
    """Whether ``params`` have a constraint that dotllm enforces; those of pooling models have none."""
    structured = getattr(params, "structured_outputs", None)
    return bool(structured and not structured.all_constraints_none() and config() and serves(structured._backend))


def may_reason() -> bool:
    """Whether requests may generate text before their constraint begins, and before it has been compiled."""
    configured = config()
    return configured is not None and bool(configured.reasoning_parser)


def token_names() -> TokenNames | None:
    """The tokens of the engine's tokenizer that a specification may name, None while there is no engine."""
    return None if configuration() is None else per_process.token_names(*tokenizer_and_model())


def tokenizer_and_model() -> tuple[Any, ModelConfig]:
    """The engine's tokenizer and model configuration."""
    from vllm.tokenizers import cached_tokenizer_from_config

    vllm_config = configuration()
    assert vllm_config is not None, "vLLM makes an engine before it takes requests"
    model_config = vllm_config.model_config
    return cached_tokenizer_from_config(model_config=model_config), model_config


@HOOK.replaces("vllm.v1.engine.input_processor:InputProcessor.__init__")
def _init(self: object, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    remember(vllm_config)
    original(self, vllm_config, *args, **kwargs)
