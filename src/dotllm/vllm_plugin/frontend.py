"""Judging a specification in vLLM's front end: cheap, bounded, and remembered."""

from __future__ import annotations

from dotllm.compilation.specification import Specification


def check(specification: Specification) -> None:
    """Raises `SpecError`."""
