"""Keeps a grammar's slow step from delaying the batch: a thread finishes it, and its request skips a step of the batch.

In a step, the guides of plain requests do only about a millisecond of work; threads do the rest (`late_steps`). vLLM is
told at once that a token was accepted, because its mask allowed it. If a request's mask is not found soon after:

 * With asynchronous scheduling, its next forward pass already runs. The token that this pass samples is dropped, and
   the request waits like one whose grammar still compiles (`pending_grammars.let_wait`). A request whose results
   must not be dropped delays the batch this one time.
 * From then on, the requests of its automaton are *held*: vLLM does not see a request while its token is in flight or
   its mask is missing, so nothing has to be dropped again. The request keeps its blocks.

Not covered: grammars with a limit, stop tokens, forced text or values that must differ, and engines that speculate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import wait
from itertools import compress

from dotllm.index.batch import advance_guides
from dotllm.index.late_steps import LateSteps
from dotllm.index.running import Running
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.speed.pending_grammars import PendingGrammars, let_wait, why_not
from dotllm.vllm_plugin.vllm_types import Request, Scheduler


class SlowSteps(LateSteps):
    """The slow steps of an engine's requests. (`batch_accept` says when each method is called.)"""

    def __init__(self, scheduler: Scheduler, pending: PendingGrammars) -> None:
        super().__init__()
        self._scheduler, self._pending = scheduler, pending

    def begin_for(self, request: Request, grammar: RequestGrammar, tokens: Sequence[int] = ()) -> None:
        """Let a thread take ``tokens`` and find the next mask."""

        def work() -> tuple[int, RequestGrammar]:
            if not grammar.accept_tokens(request.request_id, [*tokens]) and not grammar.failed:
                grammar.fail("accept", grammar.error or RuntimeError("a token that its mask allowed was not accepted"))
            return grammar.mask_row(), grammar

        self.begin(request.request_id, grammar.guide.index.lock, work)

    def advance(self, asked: Sequence[tuple[Request, RequestGrammar, int]]) -> set[str]:
        """Let grammars whose guides do not run take a token. Returns the names of the requests that do, or will."""
        slow = [each for each in asked if each[0].request_id in self.steps]
        others = [each for each in asked if each[0].request_id not in self.steps]
        guides, tokens = [grammar.guide for _, grammar, _ in others], [token for _, _, token in others]
        taken, failures = advance_guides(guides, tokens, hurried=True)
        late = [*slow, *(others[i] for i in failures)]
        for request, grammar, token in late:
            self.begin_for(request, grammar, [token])
        return {request.request_id for request, _, _ in (*late, *compress(others, taken))}

    def held(self) -> set[str]:
        """The names of requests that vLLM must not see while it puts a step together."""
        held = set()
        for name, step in [*self.steps.items()]:
            request = self._scheduler.requests.get(name)
            if request is None:
                self.forget(name)
            elif not step.done.done() or (request.num_output_placeholders and self.is_slow(step.lock)):
                held.add(name)
        return held

    def leave_running(self, running: Running) -> None:
        """Take the guides of slow automata out of ``running``."""
        for name in self.isolate(running):
            if self.steps[name].row < 0:
                request = self._scheduler.requests[name]
                self.begin_for(request, request.structured_output_request.grammar)  # type: ignore[union-attr]

    def settle(self, names: Sequence[str], running: Running, until: float) -> None:
        """Wait for the masks of ``names`` until ``until`` (`perf_counter`). A request without one leaves its step."""
        late = [name for name in names if not self.steps[name].done.done()]
        if late:
            wait([self.steps[name].done for name in late], max(0.0, until - time.perf_counter()))
        self.leave_running(running)
        for name in late:
            request = self._scheduler.requests[name]
            if not self.steps[name].done.done() and self._pending.may_drop(request):
                let_wait(self._scheduler, request, self.steps[name].done)
            else:
                self.steps[name].done.result()


def slow_steps(scheduler: Scheduler) -> SlowSteps | None:
    """The `SlowSteps` of an engine; None where no request may skip a step, so the batch waits."""
    pending = getattr(scheduler, "_pending", None)
    return SlowSteps(scheduler, pending) if isinstance(pending, PendingGrammars) and not why_not(scheduler) else None
