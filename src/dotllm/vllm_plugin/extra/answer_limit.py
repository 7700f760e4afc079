"""AnswerLimit: the state of a request whose answer must end within the tokens that it has left.

These are the rest of its ``max_tokens`` and of the model's length. No token in flight is missed: vLLM asks for the
masks of a step after it has read the results of all earlier steps, because the masks depend on them (with asynchronous
scheduling, it samples later for that). Within a draft window, callers subtract the earlier drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotllm.errors import InvalidSpecError, UnsupportedError
from dotllm.vllm_plugin.enforce.extras import GIVEN
from dotllm.vllm_plugin.enforce.request_state import reasoning_end, tokens_left
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager


class AnswerLimit:
    """See the module."""

    CLOSED = "dotllm: closed within max_tokens"
    """The ``stop_reason`` of an answer that would have been different without its limit."""

    def __init__(self, manager: StructuredOutputManager, request: Request, more: int) -> None:
        """``more``: the number of tokens by which the answer, after its reasoning, may exceed the shortest one.

        Raises:
            UnsupportedError: it is not known how to end the reasoning of ``request``.
        """
        reasons = manager.reasoner_cls is not None and manager._get_constraint_bounds(request, ())[1] > 0
        self.reasoning_end = reasoning_end(manager, request) if reasons else ()
        if reasons and not self.reasoning_end:
            raise UnsupportedError(
                "the reasoning parser does not say what ends the reasoning", keyword="max_tokens", code="too_few_tokens"
            )
        self._answer = more
        self._changed = 0
        """How many tokens were left when a mask first differed from the mask without the limit; 0: none did."""

    def begin(self, request: Request, max_model_len: int, shortest: int) -> None:
        """``shortest``: the number of tokens of the shortest answer. Raises InvalidSpecError if too few are left."""
        needed = max(shortest + len(self.reasoning_end), request.sampling_params.min_tokens + 1)
        left = tokens_left(request, max_model_len)
        if left < needed:
            message = f"the shortest answer takes {needed} tokens, and max_tokens and the model's length leave {left}"
            raise InvalidSpecError(message, keyword="max_tokens")
        self._answer += shortest

    def note(self, left: int, position: int) -> None:
        """Record that, with ``left`` tokens left, the masks of a step differ from ``position`` on (-1: none does)."""
        if self._changed <= left:  # else a token that was drawn under a different mask was kept
            self._changed = left - position if position >= 0 else 0

    def was_needed(self, left: int) -> bool:
        """Whether an answer that ended with ``left`` tokens left would have been different without the limit."""
        return self._changed > left

    def end_now(self, left: int, tokens: Sequence[int]) -> int:
        """The token with which a reasoning must continue after ``tokens`` to end in time; -1: any."""
        end = self.reasoning_end
        said = next(n for n in reversed(range(len(end))) if tuple(tokens[len(tokens) - n :]) == end[:n])
        return end[said] if left <= len(end) - said + self._answer else -1


def _give() -> None:
    GIVEN.limit = AnswerLimit


HOOK = Hook(
    name="answer-limit",
    summary="answers that are to end within max_tokens do so",
    apply=_give,
    without_it="a request for such an answer is refused",
)
