"""Values that follow from the state of a vLLM request."""

from __future__ import annotations

from functools import cache
from typing import Any

from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager


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
