"""Stand-ins for parts of an engine, where its loop is run without a model."""

from __future__ import annotations

from typing import Any


def a_backend(**attributes: Any) -> Any:
    """A `EngineBackend` that has these attributes alone: it neither has read a vocabulary nor started what compiles."""
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    backend = object.__new__(EngineBackend)
    vars(backend).update(step_masks=None, **attributes)
    return backend
