"""DotllmScheduler: dotllm's part of a step, in order (docs/vllm.md, "A request, point by point").

`before` puts it before the scheduler class that the server uses (sync, async, a user's own). Each of its methods
overrides one of vLLM's and calls its collaborators in order. Collaborators that make steps faster, and extras, take
part if their hook has been applied (`takes_part`). If a collaborator is off, a `Part` that does nothing replaces it.

The resulting class shows the base's name and module, so vLLM takes it for the base (no warning about custom
schedulers). An engine on another backend, or with a pooling model, gets vLLM's own class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from dotllm.vllm_plugin.enforce import preparation
from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.errors import Failures
from dotllm.vllm_plugin.hook import Hook, Original, Target, positional
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.vllm_types import (
    DraftTokenIds,
    GrammarOutput,
    ModelRunnerOutput,
    Request,
    Scheduler,
    SchedulerConfig,
    SchedulerOutput,
    VllmConfig,
)

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as Base
else:
    Base = object  # (a class of vLLM's would come before the class that the server uses, and answer in its place)


class Part:
    """A collaborator in the steps of a scheduler; this one does nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def begin_step(self) -> None:
        """A step is put together next. (For `BATCH`: or its masks are found.)"""

    def held(self) -> set[str]:
        """The names of the running requests that do not take part in the next step."""
        return set()

    def unblock(self, request: Request, waited_for: Enum, may_run: bool) -> bool:
        """Whether a waiting request may be scheduled. ``waited_for``: its status; ``may_run``: vLLM's answer."""
        return may_run

    def scheduled(self, step: SchedulerOutput) -> None:
        """``step`` has been put together."""

    def need_masks(self, step: SchedulerOutput) -> None:
        """``step`` has been launched, and its masks are found next."""

    def masks(self, step: SchedulerOutput) -> GrammarOutput | None:
        """The masks of ``step``; None: vLLM asks for them."""
        return None

    def masks_found(self, step: SchedulerOutput, masks: GrammarOutput | None) -> None:
        """``masks`` have been found; None if ``step`` constrains no request."""

    def drafts_came(self, drafts: DraftTokenIds) -> None:
        """``drafts`` have come, and vLLM reads them next."""

    def drafts_read(self) -> None:
        """vLLM has read the drafts."""

    def results_came(self, step: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """The results of ``step`` have come, and vLLM reads them next."""

    def results_read(self) -> None:
        """vLLM has read the results."""

    def answered(self, output: ModelRunnerOutput, outputs: Mapping[int, Any]) -> None:
        """The results ``output`` have become ``outputs``, by client."""

    def ended(self, request: Request) -> None:
        """A request has ended. (For `BATCH`: or is preempted.)"""


PENDING, DRAFTS, BATCH, FORCED, MASS = "pending grammars", "drafts", "batch", "forced text", "mass"
_parts: dict[str, type[Part]] = {}
_STRUCTURED = "_dotllm_structured_output_request"  # attribute of a ``StreamingUpdate``


def takes_part(name: str, part: type[Part]) -> Callable[[], None]:
    """A function with which a hook lets ``part`` take part, as ``name``, in all schedulers made from then on."""

    def apply() -> None:
        _parts[name] = part

    return apply


class DotllmScheduler(Base):
    """See the module. (`Part` says when each of its methods is called.)"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending, self._drafts, self._batch, self._forced, self._mass = (
            _parts.get(name, Part)(self) for name in (PENDING, DRAFTS, BATCH, FORCED, MASS)
        )
        self._failures = Failures(self)
        self._metrics: Any = None  # those of the backend, once there is one
        # The engine core makes its scheduler once the model is loaded, and nothing slow comes after it.
        preparation.wait_for_kernels(self.vllm_config)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Points 4 and 5: requests whose compile has ended continue, and a step is put together."""
        self._batch.begin_step()
        self._pending.begin_step()
        names = self._batch.held()
        if not names:
            return super().schedule(*args, **kwargs)  # type: ignore[no-any-return]
        # vLLM does not see the held requests, so they keep their blocks and their places among those that may run.
        held = [request for request in self.running if request.request_id in names]
        self.running[:] = [request for request in self.running if request.request_id not in names]
        limits = [name for name in ("max_num_running_reqs", "max_num_active_reqs") if name in self.__dict__]
        self.__dict__.update({name: self.__dict__[name] - len(held) for name in limits})
        try:
            return super().schedule(*args, **kwargs)  # type: ignore[no-any-return]
        finally:
            self.__dict__.update({name: self.__dict__[name] + len(held) for name in limits})
            self.running.extend(held)

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        """Point 3: a request runs its prompt while its grammar compiles."""
        waited_for = request.status
        return self._pending.unblock(request, waited_for, super()._handle_blocked_waiting_request(request))

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Point 5: the step carries the text that has been entered into its requests."""
        self._forced.scheduled(scheduler_output)
        self._mass.scheduled(scheduler_output)
        self._batch.scheduled(scheduler_output)
        super()._update_after_schedule(scheduler_output)

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Points 4 and 6: the masks of a launched step, which need the grammars."""
        self._batch.begin_step()
        self._pending.need_masks(scheduler_output)
        if not scheduler_output.has_structured_output_requests:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[no-any-return]
        began = time.perf_counter()
        masks = self._batch.masks(scheduler_output) or super().get_grammar_bitmask(scheduler_output)
        if self._metrics is None and (backend := backend_of(self.structured_output_manager)) is not None:
            self._metrics = backend.compiler.metrics
        if self._metrics is not None and masks is not None:
            self._metrics.step(time.perf_counter() - began, len(masks.structured_output_request_ids))
        self._batch.masks_found(scheduler_output, masks)
        self._mass.masks_found(scheduler_output, masks)
        return masks

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """The drafts for the next step have come: surplus drafts are dropped, and the others validated."""
        self._drafts.drafts_came(draft_token_ids)
        self._batch.drafts_came(draft_token_ids)
        try:
            super().update_draft_token_ids(draft_token_ids)
        finally:
            self._batch.drafts_read()

    def update_draft_token_ids_in_output(self, draft_token_ids: DraftTokenIds, scheduler_output: Any) -> None:
        """The drafts of a step that already runs have come, and are validated."""
        self._batch.drafts_came(draft_token_ids)
        try:
            super().update_draft_token_ids_in_output(draft_token_ids, scheduler_output)
        finally:
            self._batch.drafts_read()

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        """Points 8 to 10: the grammars accept the tokens, text that is forced after them is entered, vLLM reads the
        results, and requests that fail say why."""
        self._batch.results_came(scheduler_output, model_runner_output)
        self._forced.results_came(scheduler_output, model_runner_output)
        self._failures.watch()
        try:
            outputs = super().update_from_output(scheduler_output, model_runner_output)
        finally:
            self._batch.results_read()
        self._forced.results_read()
        self._mass.answered(model_runner_output, outputs)
        self._failures.explain(outputs)
        return outputs

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """The results in flight for a preempted request may come late, or not count."""
        self._batch.ended(request)
        super()._preempt_request(request, *args, **kwargs)

    def _update_request_as_session(self, session: Request, update: Any) -> None:
        """The next turn of a session has its own constraint (`_from_request`), and waits as a new request does."""
        from vllm.v1.request import RequestStatus

        super()._update_request_as_session(session, update)
        session.structured_output_request = getattr(update, _STRUCTURED, None)
        if session.structured_output_request is not None:
            session.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> object:
        """Point 10: a request has ended, so its compile is withdrawn."""
        for part in (self._batch, self._pending, self._forced, self._mass, self._failures):
            part.ended(request)
        future = getattr(request.structured_output_request, "_grammar", None)
        if isinstance(future, Future):
            future.cancel()
        return super()._free_request(request, *args, **kwargs)


OVERRIDDEN = {name: method for name, method in vars(DotllmScheduler).items() if not name.startswith("__")}
"""The methods of vLLM's scheduler that `DotllmScheduler` overrides."""


def _require_what_is_overridden() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    for method in OVERRIDDEN:
        getattr(Scheduler, method)


HOOK = Hook(
    summary="the scheduler does dotllm's part of each step, and says why a request has failed",
    targets=[
        Target("vllm.v1.core.sched.scheduler", f"Scheduler.{name}", positional(method))
        for name, method in OVERRIDDEN.items()
    ],
    apply=_require_what_is_overridden,
    without_it='the client of a request that fails is only told "Internal server error"; steps are as slow as vLLM\'s; '
    "a session is constrained in its first turn only",
)


@HOOK.replaces("vllm.config.scheduler:SchedulerConfig.get_scheduler_cls")
def _get_scheduler_cls(self: SchedulerConfig, *, original: Original) -> type:
    from vllm.v1.core.sched.scheduler import Scheduler

    base: type = original(self)
    if issubclass(base, DotllmScheduler) or not issubclass(base, Scheduler):
        return base  # a class that is not derived from vLLM's does none of what we change
    return before(base)  # type: ignore[arg-type]  # a class is hashable


@HOOK.replaces("vllm.v1.request:StreamingUpdate.from_request")
def _from_request(cls: Any, request: Request, *, original: Original) -> Any:
    """vLLM keeps a session as one request. Each chunk of input comes as a separate request, whose specification is
    compiled, but the session does not take over the grammar. So the second answer would have the grammar of the first,
    which has ended, and be free text. Here the chunk's grammar comes with the update."""
    update = original(cls, request)
    if update is not None:
        setattr(update, _STRUCTURED, request.structured_output_request)
    return update


@cache
def before(base: type) -> type:
    """A class with `DotllmScheduler` before the class ``base``."""

    def __new__(cls: type, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> Any:
        pools = vllm_config.model_config.runner_type == "pooling"  # nothing of it is constrained
        if is_ours(vllm_config.structured_outputs_config.backend) and not pools:
            return object.__new__(cls)
        return base(vllm_config, *args, **kwargs)

    return type(f"Dotllm{base.__name__}", (DotllmScheduler, base), {"__module__": base.__module__, "__new__": __new__})
