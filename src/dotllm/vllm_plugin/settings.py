"""Settings of the plugin, from the environment, which all of vLLM's processes inherit (see `dotllm.cli.options`)."""

from __future__ import annotations

import os

BACKEND = "dotllm"
"""The backend's name, in vLLM's configuration and in ours."""


def flag(variable: str, default: bool) -> bool:
    """A yes/no variable: 1/true/yes/on or 0/false/no/off; empty or unset means ``default``."""
    value = os.environ.get(variable, "").strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    if value:
        raise ValueError(f"{variable}={value!r}: expected 1 or 0")
    return default


def takes_auto() -> bool:
    """Whether vLLM's backend ``auto`` means dotllm (``DOTLLM_TAKE_AUTO``, default yes)."""
    return flag("DOTLLM_TAKE_AUTO", default=True)


def is_ours(backend: str | None) -> bool:
    """Whether requests of a server configured with ``backend`` are served by dotllm."""
    return backend == BACKEND or (backend == "auto" and takes_auto())
