"""AnswerLimit: what is known of a request whose answer is to end within the tokens that are left to it.

Those are what remain of its ``max_tokens`` and of the model's length. Nothing in flight is missed: vLLM asks for the
masks of a step when it has read the results of all earlier ones, since the masks depend on them (with asynchronous
scheduling it samples later for that). Whoever asks within a draft window subtracts the drafts before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from dotllm.errors import InvalidSpecError, UnsupportedError
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager

CLOSED = "dotllm: closed within max_tokens"
"""The ``stop_reason`` of an answer that would have been another one without its limit."""


def tokens_left(request: Request, max_model_len: int) -> int:
    """How many tokens ``request`` may still generate, the one that ends it included."""
    return min(request.max_tokens - request.num_output_tokens, max_model_len - request.num_tokens)


def reasoning_end(manager: StructuredOutputManager, request: Request) -> tuple[int, ...]:
    """The tokens that end the reasoning of ``request``; none if the server's parser does not say so."""
    text = getattr(manager._get_reasoner(request), "reasoning_end_str", None)
    return _encoded(manager.tokenizer, text) if text else ()


@cache
def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


class AnswerLimit:
    """See the module."""

    def __init__(self, manager: StructuredOutputManager, request: Request, more: int) -> None:
        """``more``: by how many tokens the answer may be longer than the shortest one, behind a reasoning.

        Raises:
            UnsupportedError: nobody knows how to end the reasoning of ``request``.
        """
        reasons = manager.reasoner_cls is not None and manager._get_constraint_bounds(request, ())[1] > 0
        self.reasoning_end = reasoning_end(manager, request) if reasons else ()
        if reasons and not self.reasoning_end:
            raise UnsupportedError(
                "the reasoning parser does not say what ends a reasoning", keyword="max_tokens", code="too_few_tokens"
            )
        self._answer = more
        self._changed = 0
        """How many tokens were left when a mask first was another than without the limit; 0: none was."""

    def begin(self, request: Request, max_model_len: int, shortest: int) -> None:
        """``shortest``: how many tokens the shortest answer takes. Raises InvalidSpecError: so many are not left."""
        needed = max(shortest + len(self.reasoning_end), request.sampling_params.min_tokens + 1)
        left = tokens_left(request, max_model_len)
        if left < needed:
            message = f"the shortest answer takes {needed} tokens, and max_tokens and the model's length leave {left}"
            raise InvalidSpecError(message, keyword="max_tokens")
        self._answer += shortest

    def note(self, left: int, position: int) -> None:
        """With ``left`` tokens left, the masks of a step are others from ``position`` on (-1: none is)."""
        if self._changed <= left:  # else a token has been kept that was drawn under another mask
            self._changed = left - position if position >= 0 else 0

    def was_needed(self, left: int) -> bool:
        """Whether an answer that ended with ``left`` tokens left would have been another one without the limit."""
        return self._changed > left

    def end_now(self, left: int, tokens: Sequence[int]) -> int:
        """The token with which a reasoning that ends in ``tokens`` must go on to end in time; -1: any."""
        end = self.reasoning_end
        said = next(n for n in reversed(range(len(end))) if tuple(tokens[len(tokens) - n :]) == end[:n])
        return end[said] if left <= len(end) - said + self._answer else -1
