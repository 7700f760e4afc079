"""What a front-end process knows about its engines: vLLM parses requests without reading the engine's configuration.

vLLM makes one ``InputProcessor`` in each process that takes requests, with the configuration of their engine. This
module remembers that configuration. A process may have several engines; `of` selects the one that serves a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.vllm_types import StructuredOutputsConfig, VllmConfig

_last: VllmConfig | None = None
_of_request: ContextVar[VllmConfig | None] = ContextVar("dotllm_engine", default=None)

HOOK = Hook(
    summary="the front end knows its engine's backend",
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


@HOOK.replaces("vllm.v1.engine.input_processor:InputProcessor.__init__")
def _init(self: object, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    remember(vllm_config)
    original(self, vllm_config, *args, **kwargs)
