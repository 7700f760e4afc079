"""A request whose index still compiles runs its whole prompt, where the GPU follows the grammars.

The device samples nothing for a request whose place it does not know, and the request repeats the last token of its
prompt in the next step (`walk`). A grammar that is not there yet is just such a place: the request is let through
without one, gets a slot without a place, and begins with the first step after its index has come. Others do not notice:
a repeated token is one more in their step. Only a step that runs nobody else waits for the compile, up to
`GRAMMAR_WAIT_S`. (`late_mask` is the same for synchronous scheduling.)
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, wait
from typing import Any

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.engine_core import scheduler
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.hold_times import HoldTimes
from dotllm.vllm_plugin.engine_core.late_mask import GRAMMAR_WAIT_S
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.engine_core.step_phases import StepPhases
from dotllm.vllm_plugin.hook import Hook, Target

logger = logging.getLogger(__name__)

_SCHEDULER = "vllm.v1.core.sched.scheduler"


class LatePlaceScheduler:
    """Goes before `late_mask.LateMaskScheduler`; gives places to the `_walk` of `walk_scheduler.WalkScheduler`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._placeless: dict[str, Any] = {}  # requests that run without their grammar
        self._abandoned: set[str] = set()  # those of them whose results do not count any more
        self._placeless_holds = HoldTimes("prompt")
        self._place_steps = StepPhases()
        options = CompilationOptions.from_environment()
        self._place_limit = min(options.overlap_requests, scheduler.sequences(self) // 2) if options.overlap else 0

    def _runs_placeless(self, request: Any) -> bool:
        walking: Any = self
        return (
            len(self._placeless) < self._place_limit
            and scheduler.awaits_grammar(request)
            and not request.structured_output_request._grammar.done()
            and walking.structured_output_manager.reasoner_cls is None  # whose requests mostly need no grammar yet
            and not request.resumable
            and not request.has_encoder_inputs
            and request.sampling_params.prompt_logprobs is None
            and walking._walking() is not None
        )

    def _runs_unmasked(self, request: Any) -> bool:
        """Whether nobody needs to wait for the grammar of ``request`` (asked by `scheduler.OverlapScheduler`)."""
        return self._runs_placeless(request) or bool(super()._runs_unmasked(request))  # type: ignore[misc]

    def _promotes(self, request: Any) -> bool:
        from vllm.v1.request import RequestStatus

        waits = request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        if waits and self._runs_placeless(request):
            self._placeless[request.request_id] = request
            request.status = RequestStatus.WAITING
            return True
        return self._other_promotes(request)

    _try_promote_blocked_waiting_request = _promotes
    _handle_blocked_waiting_request = _promotes

    def _other_promotes(self, request: Any) -> bool:
        return scheduler.promotes(super(), request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step. A failed compile is registered as vLLM does; until the request has ended it stays placeless."""
        if self._placeless:
            for request in list(self._placeless.values()):
                if isinstance(_grammar(request), Exception):
                    scheduler.register_failure(request, self._other_promotes)
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]  # the class after us has it
        walk = self._walking() if output.scheduled_new_reqs else None  # type: ignore[attr-defined]
        if walk is not None:
            walk.prompt_is_launching()
        return output

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """What the workers need to sample a step whose forward pass is on its way."""
        backend = self.structured_output_manager.backend  # type: ignore[attr-defined]
        walk = self._walking()  # type: ignore[attr-defined]
        if walk is not None:
            walk.is_launched()
        if walk is not None and self._place_limit:
            backend.steps = self._place_steps
            self._place_steps.launched(backend.compiler)
        if self._placeless and walk is not None:
            try:
                self._find_places(walk, scheduler_output)
            except Exception:
                logger.exception("finding places failed; these requests end, and others wait for the CPU from now on")
                self._stop_walking()  # type: ignore[attr-defined]
                walk = None
        if self._placeless and walk is None:
            self._abandon(scheduler_output)
        try:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        finally:
            if self._abandoned:
                self._hide(scheduler_output, hidden=False)

    def _find_places(self, walk: Any, scheduler_output: Any) -> None:
        """Whose grammar has come begins."""
        scheduled = scheduler_output.num_scheduled_tokens
        if all(name in self._placeless for name in scheduled):
            pending = (self._placeless[name].structured_output_request._grammar for name in scheduled)
            wait([future for future in pending if isinstance(future, Future)], GRAMMAR_WAIT_S)
        for name, request in list(self._placeless.items()):
            grammar = _grammar(request)
            if isinstance(grammar, RequestGrammar):
                walk.begin(name, grammar, request.num_tokens)
                del self._placeless[name]
                self._placeless_holds.goes_on(name, self)
            elif name in scheduled and not request.is_prefill_chunk:
                self._placeless_holds.stands_still(name)

    def _abandon(self, scheduler_output: Any) -> None:
        """Walking has ended since these requests were let through, and nobody masks what they sample: they end."""
        self._abandoned.update(self._placeless)
        for request in self._placeless.values():
            scheduler.withdraw(request)
            request.structured_output_request._grammar = RuntimeError("the GPU's walk has ended")
        self._hide(scheduler_output, hidden=True)

    def _hide(self, scheduler_output: Any, *, hidden: bool) -> None:
        """vLLM makes no masks for what looks like the middle of a prompt."""
        for name in self._abandoned:
            request = self.requests.get(name)  # type: ignore[attr-defined]
            if request is not None and name in scheduler_output.num_scheduled_tokens:
                request.is_prefill_chunk = hidden

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The results of a step, without those of the abandoned."""
        self._place_steps.landed()
        for name in self._abandoned:
            index = model_runner_output.req_id_to_index.get(name)
            if index is not None and model_runner_output.sampled_token_ids:
                model_runner_output.sampled_token_ids[index] = []
        return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request has ended, however: nobody waits for its compile any more."""
        self._placeless_holds.forget(request.request_id)
        self._abandoned.discard(request.request_id)
        if self._placeless.pop(request.request_id, None) is not None:
            scheduler.withdraw(request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def _grammar(request: Any) -> Any:
    """A request's grammar, an exception, or None while it compiles (for which vLLM's property waits 0.1 ms)."""
    structured = request.structured_output_request
    pending = structured._grammar
    return None if isinstance(pending, Future) and not pending.done() else structured.grammar


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduler.require_promotion(Scheduler)
    scheduler_class.add(LatePlaceScheduler)


HOOK = Hook(
    name="late-place",
    summary="where the GPU follows the grammars, a prompt runs while its index compiles",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.schedule", ("self",)),
        Target(_SCHEDULER, "Scheduler.get_grammar_bitmask", ("self", "scheduler_output")),
        Target(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output", "model_runner_output")),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        Target("vllm.v1.request", "Request.__init__@is_prefill_chunk"),
        Target("vllm.v1.request", "Request.__init__@resumable"),
    ),
    apply=_apply,
    required=False,
    without_it="there a request waits for its index before its prompt is run",
)
