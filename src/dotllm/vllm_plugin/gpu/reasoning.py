"""Where the GPU follows the grammars: requests that reason before they are constrained.

With a reasoning parser vLLM leaves a request free until its reasoning has ended, which the engine core finds out from
the tokens. The GPU is a step ahead of it. So for the GPU such a request stands in a place that no token leads away from
(`walk_message.FREE`), and when vLLM says that the reasoning has ended, the next token has been sampled already, freely.
That one does not count: its result is dropped, and the request runs the token that has ended the reasoning again, in
the place where its grammar begins (`JumpForward.take_back`). One step a request, whatever the parser looks for.

In vLLM's books the step in flight has then computed nothing for the request; in the model runner's books the request
has one token more that comes from its list and not from the sampler, as after forced text. What the sampler keeps of a
token besides, the counts of penalties, is put right (`jump_forward.uncount`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.gpu.reasoning_ends import ends_of
from dotllm.vllm_plugin.gpu_masks.constrained import stance_of
from dotllm.vllm_plugin.jump_forward import jump_forward


class Reasoning:
    """The engine core's side; one per scheduler."""

    def __init__(self, jumps: jump_forward.JumpForward) -> None:
        self.free: dict[str, Any] = {}
        """requests that are not constrained so far, by their ids"""
        self.late: dict[str, Any] = {}
        """those that are, and whose grammar is still being compiled (see `dotllm.vllm_plugin.engine_core.reasoning`)"""
        self._jumps = jumps
        self._ends: frozenset[int] | None = frozenset()
        """tokens without which nobody's reasoning ends (see `reasoning_ends`), of those in ``free``; None: not known"""

    def begins(self, request: Any, walk: Any, manager: Any) -> bool:
        """Whether a request that is to be sampled for the first time reasons; if so it has a slot now."""
        if manager.reasoner_cls is None:
            return False
        stance = stance_of(manager, request)
        if not stance.holds:
            walk.stay_free(request.request_id, request.num_tokens, stance.forbidden)
            ends = ends_of(request.structured_output_request.reasoner)
            before = self._ends if self.free else frozenset()
            self._ends = None if ends is None or before is None else before | ends
            self.free[request.request_id] = request
        return not stance.holds

    def take(
        self, walk: Any, ids: list[str], slots: Int32, drawn: list[list[int]], dropped: list[int]
    ) -> tuple[list[int], list[int]]:
        """Take what a step has drawn for requests that are free; what was drawn at the positions ``dropped`` does not
        count. Returns the positions of both, rising, and those of them that vLLM has to be asked about."""
        if not self.free:
            return dropped, dropped
        free = np.fromiter(map(self.free.__contains__, ids), np.bool_, len(ids))
        free[dropped] = False
        walk.took_freely(slots[free])
        ask = free.copy()
        if self._ends is not None:
            ask[np.fromiter(map(self._ends.isdisjoint, drawn), np.bool_, len(ids))] = False
        ask[dropped] = free[dropped] = True
        return np.flatnonzero(free).tolist(), np.flatnonzero(ask).tolist()

    def end(self, walk: Any, sampled: Collection[str], asked: Collection[str] | None) -> list[str]:
        """vLLM has seen the tokens of a step: who is constrained from now on begins. Those that have to run their last
        token again.

        sampled: requests of the step in flight, if that one samples without knowing this; asked: those that vLLM has
        asked about, None: all.
        """
        looked_at = (
            list(self.free.values())
            if asked is None
            else [self.free[name] for name in sorted(asked) if name in self.free]
        )
        ended = [request for request in looked_at if request.structured_output_request.reasoning_ended]
        again = [r for r in ended if r.num_output_placeholders > 0 and r.request_id in sampled]
        for request in ended:
            del self.free[request.request_id]
        for request in again:  # first, since this holds even if nothing can be begun
            self._jumps.take_back(request)
        if walk is not None:
            for request in ended:
                self._begin(request, walk)
        return [request.request_id for request in again]

    def begin_late(self, walk: Any) -> None:
        """Whose grammar has come since the reasoning ended begins."""
        for request in list(self.late.values()):
            if isinstance(request.structured_output_request.grammar, RequestGrammar):
                self._begin(request, walk)

    def _begin(self, request: Any, walk: Any) -> None:
        grammar = request.structured_output_request.grammar
        if isinstance(grammar, RequestGrammar):
            self.late.pop(request.request_id, None)
            walk.begin(request.request_id, grammar, request.num_tokens)
        else:
            self.late[request.request_id] = request
            walk.pause(request.request_id)

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self.free.pop(request_id, None)
        self.late.pop(request_id, None)


def why_not(scheduler: Any) -> str:
    """Why nothing can walk in an engine with this reasoning parser; "" if there is none, or it is no hindrance."""
    if getattr(scheduler.structured_output_manager, "reasoner_cls", None) is None:
        return ""
    if jump_forward.has_logits_processors(scheduler.vllm_config.model_config):
        return "a logits processor, which may remember tokens that do not count, with a reasoning parser"
    try:
        jump_forward.wrap_add_requests()
    except Exception as error:  # whatever a foreign version of vLLM makes of it
        return f"a reasoning parser: {type(error).__name__}: {error}"
    return ""
