"""AnswerLimit: the state of a request whose answer must end within the tokens that it has left.

These are what is left of its ``max_tokens`` and of the model's length. No token in flight is missed: vLLM asks for the
masks of a step after it has read the results of all earlier steps, because the masks depend on them (with asynchronous
scheduling, it samples later for that). Within a draft window, callers subtract the earlier drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dotllm.arrays import Int32
from dotllm.errors import InvalidSpecError, UnsupportedError
from dotllm.vllm_plugin.enforce.compile_hook import GIVEN
from dotllm.vllm_plugin.enforce.errors import contained
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.speed.request_state import reasoning_end, tokens_left
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput, Request, Scheduler, StructuredOutputManager
from dotllm.vllm_plugin.workarounds.implicit_ends import implicit_ends

if TYPE_CHECKING:
    from dotllm.compilation import Compiled
    from dotllm.device_masks.sender import StepMasks
    from dotllm.index import Guide
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar


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
        self._implicit_ends = implicit_ends(manager._get_reasoner(request)) if reasons else ()
        self._answer = more
        self._changed = 0
        """How many tokens were left when a mask first differed from the mask without the limit; 0: none did."""

    def begin(self, request: Request, max_model_len: int, shortest: int) -> None:
        """``shortest``: the number of tokens of the shortest answer. Raises InvalidSpecError if too few are left."""
        needed = max(shortest + len(self.reasoning_end), request.sampling_params.min_tokens + 1)
        left = tokens_left(request, max_model_len)
        if left < needed:
            text = f"the shortest answer takes {needed} tokens, and max_tokens and the model's length leave {left}"
            raise InvalidSpecError(text, keyword="max_tokens", code="too_few_tokens", help="raise or omit max_tokens")
        self._answer += shortest

    def guide(self, compiled: Compiled, request: Request, max_model_len: int) -> Guide:
        """The guide of ``request``, with its first mask: computed here, not in the engine's loop. Raises as `begin`."""
        guide: Guide = compiled.guide()  # (a warmer index may not know the shortest ways)
        self.begin(request, max_model_len, guide.tokens_to_finish)
        guide.mask_within(tokens_left(request, max_model_len))
        return guide

    def note(self, left: int, position: int) -> None:
        """Record that, with ``left`` tokens left, the masks of a step differ from ``position`` on (-1: none does)."""
        if self._changed <= left:  # else a token that was drawn under a different mask was kept
            self._changed = left - position if position >= 0 else 0

    def was_needed(self, left: int) -> bool:
        """Whether an answer that ended with ``left`` tokens left would have been different without the limit."""
        return self._changed > left

    def tell(self, request: Request, output: EngineCoreOutput, scheduler: Scheduler) -> None:
        """If the answer of ``request``, which has ended, would have been different without the limit, say so."""
        if self.was_needed(tokens_left(request, scheduler.max_model_len)):
            output.stop_reason = self.CLOSED
            scheduler.structured_output_manager.backend.compiler.metrics.add("dotllm_answers_closed")

    @staticmethod
    @contained(lambda: -1)
    def change_rows(grammar: RequestGrammar, drafts: Sequence[int], left: int, rows: Int32, configs: Int32) -> int:
        """`draft_rows.limit_rows` with ``left`` tokens left."""
        from dotllm.index.draft_rows import limit_rows

        changed = limit_rows(grammar.guide, drafts, left, rows, configs)
        grammar.limit.note(left, changed)
        return changed

    def reasoning_rows(
        self, sender: StepMasks, request: Request, drafts: Sequence[int], left: int, masked: tuple[int, ...]
    ) -> list[int]:
        """The rows of ``request``, which reasons, before each of ``drafts`` and after the last; ``masked`` must not be
        sampled."""
        structured: Any = request.structured_output_request
        rows, first = [], -1
        said = [*request.all_token_ids[-len(self.reasoning_end) :], *drafts]
        for position in range(1 + len(drafts)):
            rest = left - position
            token = self.end_now(rest, said[: len(said) - len(drafts) + position])
            if token >= 0:
                rows.append(sender.row((token,), allowed=True))
                first = position if first < 0 else first
            else:
                late = _too_late(structured._grammar, self._implicit_ends, rest)
                rows.append(sender.row(masked + late, allowed=False))
        self.note(left, first)
        return rows

    def end_now(self, left: int, tokens: Sequence[int]) -> int:
        """The token with which a reasoning must continue after ``tokens`` to end in time; -1: any."""
        end = self.reasoning_end
        said = next(n for n in reversed(range(len(end))) if tuple(tokens[len(tokens) - n :]) == end[:n])
        return end[said] if left <= len(end) - said + self._answer else -1


@contained(tuple)
def _too_late(grammar: RequestGrammar, tokens: Sequence[int], left: int) -> tuple[int, ...]:
    """Those of ``tokens`` after which an answer could not end in time, with ``left`` tokens left before them."""
    from dotllm.index.draft_rows import is_set

    mask = grammar.guide.mask_within(left) if tokens else None
    return () if mask is None else tuple(token for token in tokens if not is_set(mask, token))


def _give() -> None:
    GIVEN.limit = AnswerLimit


HOOK = Hook(
    summary="with dotllm_finish, answers end within max_tokens",
    apply=_give,
    without_it="a request with dotllm_finish is refused",
)
