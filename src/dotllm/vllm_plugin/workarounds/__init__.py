"""Fixes for vLLM bugs that affect constrained requests. Each file says where and since when, and when it may go.

A test of each fails as soon as a release no longer needs it (``tests/vllm_plugin/workarounds``).
"""

from __future__ import annotations


def on_cpu() -> bool:
    """Whether this is vLLM's CPU build."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
