"""Importing or running dotllm means using it: vLLM may load our plugin, in each of its processes, on any node."""

from __future__ import annotations

import os

PLUGIN_NAME = "dotllm"
"""The name of our entry point, which vLLM loads."""


def allow_plugin() -> None:
    """Add dotllm to ``VLLM_PLUGINS`` if the user lists vLLM's plugins, and our variables to those that vLLM copies to
    the processes that Ray starts on any node (``--data-parallel-backend ray``), because these inherit nothing."""
    if "VLLM_PLUGINS" in os.environ:
        _add("VLLM_PLUGINS", PLUGIN_NAME)
    _add("VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", "DOTLLM_")


def _add(variable: str, name: str) -> None:
    """Add ``name`` to a list in the environment."""
    names = os.environ.get(variable, "").split(",")
    if name not in map(str.strip, names):
        os.environ[variable] = ",".join(listed for listed in (*names, name) if listed)
