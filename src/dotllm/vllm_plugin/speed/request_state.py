"""What follows from the state and the parameters of a vLLM request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from dotllm.vllm_plugin.vllm_types import Request, SamplingParams, StructuredOutputManager


def tokens_left(request: Request, max_model_len: int) -> int:
    """How many tokens ``request`` may still generate, including the one that ends it."""
    return min(request.max_tokens - request.num_output_tokens, max_model_len - request.num_tokens)


def reasoning_end(manager: StructuredOutputManager, request: Request) -> tuple[int, ...]:
    """The tokens that end the reasoning of ``request``; none if the server's parser does not name them."""
    text = getattr(manager._get_reasoner(request), "reasoning_end_str", None)
    return _encoded(manager.tokenizer, text) if text else ()


@cache
def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def beyond(allowed: frozenset[str], parameters: SamplingParams) -> Iterator[tuple[str, Any]]:
    """The parameters that ask for something, by name, except those in ``allowed``. (A parameter that vLLM adds later is
    not among the allowed names, so a request that uses it is served without the features that have not been tried with
    it.)"""
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
