"""Stand-ins for parts of an engine whose loop runs without a model."""

from __future__ import annotations

from typing import Any


def a_backend(**attributes: Any) -> Any:
    """An `EngineBackend` with only these attributes: it has neither read a vocabulary nor started a compiler."""
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    backend = object.__new__(EngineBackend)
    vars(backend).update(step_masks=None, **attributes)
    return backend
