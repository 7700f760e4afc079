"""The sampling parameters that a request uses beyond the allowed ones.

A parameter that vLLM adds later is not among the allowed names, so a request that uses it is served without the
features that have not been tried with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from dotllm.vllm_plugin.vllm_types import SamplingParams


def beyond(allowed: frozenset[str], parameters: SamplingParams) -> Iterator[tuple[str, Any]]:
    """The parameters that ask for something, by name, except those in ``allowed``."""
    plain = _plain(type(parameters))
    for name, default in plain.items():
        if name not in allowed:
            value = getattr(parameters, name)
            if value is not default and not (isinstance(value, int | float) and value == default):
                yield name, value


@cache
def _plain(parameters: Any) -> dict[str, Any]:
    """The fields of vLLM's ``SamplingParams``, and their values when they ask for nothing."""
    plain = parameters()
    return {name: getattr(plain, name) for name in parameters.__struct_fields__}
