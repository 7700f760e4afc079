"""H7: asynchronous scheduling keeps its overlap with constrained requests, because the GPU follows their grammars.

vLLM marks a step whose constrained requests still wait for a token (``pending_structured_output_tokens``) and launches
its sampling only when that token has arrived. Here such a step is launched at once, with a `walk.Walk` message in place
of masks, and `update_from_output` moves the grammars behind it. A request that sampled nothing, because its place was
not known on the GPU, is treated as one whose draft was rejected: it has computed one token less than was planned.

A request that reasons first is free until vLLM finds, one step late, that its reasoning has ended. The token that was
sampled meanwhile does not count: the request runs its last token again, now under its mask (`reasoning`).

Only where all of this holds (see `why_not`): the V2 model runner, asynchronous scheduling, no speculation, one pipeline
stage, and a model that may run a token twice.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable
from itertools import chain, compress, count
from operator import not_
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dotllm.arrays import Int32
from dotllm.errors import SpecError
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.engine_core.scheduler import graph_tokens, has_recurrent_state
from dotllm.vllm_plugin.gpu import reasoning, sampling
from dotllm.vllm_plugin.gpu.asked import MIN_REQUESTS_TO_ASK, Asked
from dotllm.vllm_plugin.gpu.entry import FORCED, LOOKED_AT
from dotllm.vllm_plugin.gpu.heap import NOTHING
from dotllm.vllm_plugin.gpu.reasoning import Reasoning
from dotllm.vllm_plugin.gpu_masks import manager_hook, worker_hooks
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.jump_forward import jump_forward
from dotllm.vllm_plugin.settings import coalescence, gpu_walk

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STEP = "dotllm_walk"  # attribute of a scheduler output: a `Launched`


class Batch(NamedTuple):
    """Requests whose step samples under a grammar, and where they are. Shared by steps: nobody changes any of it."""

    ids: list[str]
    slots: Int32
    """int32 [n]"""
    leases: Int32
    """int32 [n], `Walk.leases` of these slots"""
    scheduled: list[str]
    """all requests of the step"""
    changes: int
    """`Walk.changes` at that time; -1: not to be used for another step"""


_NOBODY = Batch([], NOTHING, NOTHING, [], -1)


class Launched(NamedTuple):
    """A step that the GPU walks."""

    walk: Any
    clock: int
    batch: Batch
    changes: int
    """`Walk.changes` at that time"""


class WalkScheduler:
    """Goes before vLLM's ``AsyncScheduler``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._walk: Any = None
        self._walk_of: Any = None  # the backend that `_walk` was decided for
        self._jumps = jump_forward.JumpForward(graph_tokens(self))
        self._launched: Any = None  # the scheduler output of the last step
        self._may_jump = False
        self._check_result_of: set[str] = set()  # preempted, or with entered text, and no result since that counts
        self._batch = _NOBODY  # that of the last step
        self._last_grammar_output: Any = None  # of the last step; one without news is the same again
        self._reasoning = Reasoning(self._jumps)
        self._asked = Asked(self.structured_output_manager)  # type: ignore[attr-defined]

    def _walking(self) -> Any:
        """The `walk.Walk` of this engine, or None where the GPU does not walk."""
        scheduler: Any = self
        backend = scheduler.structured_output_manager.backend
        if backend is not self._walk_of:
            self._walk_of = backend
            self._walk = begin(scheduler, backend)
            self._batch = _NOBODY  # (its slots were another walk's)
            self._may_jump = self._walk is not None and may_jump(scheduler.vllm_config)
        if self._walk is not None and self._walk.overflowed:
            logger.warning("more masks than the device keeps: constrained requests wait for the CPU from now on")
            self._stop_walking()
        return self._walk

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        super()._update_after_schedule(scheduler_output)  # type: ignore[misc]  # the class after us has it
        self._launched = scheduler_output
        self._jumps.send(scheduler_output, self.requests)  # type: ignore[attr-defined]
        if self._walk is not None:
            self._walk.step_is_launched()
        if scheduler_output.pending_structured_output_tokens:
            walk = self._walking()
            if walk is not None and not walk.lead.waits:
                scheduler_output.pending_structured_output_tokens = False

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """What the workers need to sample this step."""
        if not scheduler_output.has_structured_output_requests:
            return None
        walk = self._walking()
        if walk is None:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        try:
            return self._walk_message(walk, scheduler_output)
        except Exception:
            # Whatever this step samples is checked when it comes; from now on vLLM waits for tokens again.
            logger.exception("preparing the GPU's walk failed; constrained requests wait for the CPU from now on")
            self._stop_walking()
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]

    def _walk_message(self, walk: Any, scheduler_output: Any) -> Any:
        batch = self._batch_of(walk, scheduler_output)
        if not batch.ids:
            return None
        resumed = scheduler_output.scheduled_cached_reqs.resumed_req_ids
        if resumed:
            for request_id in resumed:
                walk.resumed(request_id)
        if self._reasoning.late:
            self._reasoning.begin_late(walk)
        step = walk.message()
        setattr(scheduler_output, _STEP, Launched(walk, walk.clock, batch, walk.changes))
        if self._last_grammar_output is None or self._last_grammar_output.grammar_bitmask is not step:
            from vllm.v1.core.sched.output import GrammarOutput

            self._last_grammar_output = GrammarOutput([], step)
        return self._last_grammar_output

    def _batch_of(self, walk: Any, scheduler_output: Any) -> Batch:
        """Those of a step. Mostly they are those of the step before: then nothing else is looked at."""
        scheduled = scheduler_output.num_scheduled_tokens
        names, last = list(scheduled), self._batch
        further = scheduler_output.total_num_scheduled_tokens - len(names)  # tokens, behind the first one of each
        plain = not self._check_result_of and not further
        if plain and last.changes == walk.changes and last.scheduled == names:
            return last
        slots, without_slot = self._slots_of(walk, names)
        if plain and not without_slot:
            batch = Batch(names, slots, walk.leases[slots], names, walk.changes)
        else:
            ids, slots, reusable = self._sampled_here(walk, names, scheduled, slots, without_slot, further)
            batch = Batch(ids, slots, walk.leases[slots], names, walk.changes if plain and reusable else -1)
        self._batch = batch
        return batch

    def _slots_of(self, walk: Any, names: list[str]) -> tuple[Int32, list[int]]:
        """int32 [n], the slots of a step's requests, -1 for those that have none; and the positions of these.

        Mostly they are those of the step before, less those that have ended, and new ones behind them.
        """
        last = self._batch
        if last.ids is last.scheduled:
            there = walk.leases[last.slots] == last.leases
            stay = list(compress(last.ids, there.tolist()))
            if names[: len(stay)] == stay:
                further = walk.slots_of(names[len(stay) :])
                without = [i for i, slot in enumerate(further.tolist(), len(stay)) if slot < 0]
                return np.concatenate((last.slots[there], further)), without
        slots = walk.slots_of(names)
        return slots, np.flatnonzero(slots < 0).tolist()

    def _sampled_here(
        self,
        walk: Any,
        names: list[str],
        counts: dict[str, int],
        slots: Int32,
        without_slot: list[int],
        further: int,
    ) -> tuple[list[str], Int32, bool]:
        """Those of a step's requests that are constrained and whose step samples, and their slots. And whether that
        would be so again for the same requests: whether all others are free. counts: how many tokens each runs;
        further: how many there are behind the first one of each. slots: those known before, or -1, at the positions
        ``without_slot``; these get one.

        Requests come and go in almost every step of a large batch, so only those that are not as in most steps are
        looked at one by one.
        """
        requests, manager = self.requests, self.structured_output_manager  # type: ignore[attr-defined]
        positions_to_check = without_slot
        if further > sum(counts[names[i]] - 1 for i in without_slot):  # somebody with a slot runs several
            positions_to_check = [*without_slot, *_positions(map((1).__lt__, counts.values()))]
        dropped, reusable = [], True
        for i in self._with_requests_to_check(positions_to_check, names):
            request_id = names[i]
            request = requests.get(request_id)
            if slots[i] < 0:
                if request is None or not request.use_structured_output or request.is_prefill_chunk:
                    reusable = reusable and request is not None and not request.use_structured_output
                    dropped.append(i)
                    continue
                if request_id in getattr(self, "_placeless", ()):  # see `late_place`
                    walk.reserve(request_id)
                elif not self._reasoning.begins(request, walk, manager):
                    walk.assign(request_id, request.structured_output_request.grammar, request.num_tokens)
                slots[i] = walk.slot_of[request_id]
            elif request.is_prefill_chunk:
                reusable = False
                dropped.append(i)
        return _without(names, dropped), np.delete(slots, dropped) if dropped else slots, reusable

    def _with_requests_to_check(self, positions_to_check: Iterable[int], names: list[str]) -> list[int]:
        """``positions_to_check``, and those of requests in `_check_result_of` among ``names``; they rise."""
        further = _positions(map(self._check_result_of.__contains__, names)) if self._check_result_of else ()
        return sorted({*positions_to_check, *further})

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_result_of.add(request.request_id)
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Follow the tokens of the step, then let vLLM do what it does with them."""
        launched = getattr(scheduler_output, _STEP, None)
        if self._walk is not None:
            self._walk.results_are_there()
        if self._may_jump:
            self._jumps.time(self._launched)
        if launched is not None:
            self._follow(launched, model_runner_output)
        asked = self._asked.about
        with self._asked:
            result = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        if self._reasoning.free:
            # A step that waits for this one's tokens has not been sampled, and will be under the mask.
            sampled = getattr(self._launched, _STEP, None) is not None
            try:
                self._check_result_of.update(
                    self._reasoning.end(self._walk, self._launched.num_scheduled_tokens if sampled else (), asked)
                )
            except Exception:
                logger.exception(
                    "beginning behind a reasoning failed; constrained requests wait for the CPU from now on"
                )
                self._stop_walking()
        return result

    def _follow(self, launched: Launched, output: Any) -> None:
        batch, walk, drawn = launched.batch, self._walk, output.sampled_token_ids
        ids, slots, leases = batch.ids, batch.slots, batch.leases
        if output.req_ids != ids:
            drawn = list(map(drawn.__getitem__, map(output.req_id_to_index.__getitem__, ids)))
        tokens = array("i", chain.from_iterable(drawn))  # one of each request, or none
        if walk is not launched.walk:  # walking has ended since: tokens go the ordinary way
            self._results_to_drop(ids, (), drawn, of_all=True)
            return
        dropped: list[int] = []  # positions of results that are not to be followed
        asked: list[int] = []  # and of those that vLLM has to be asked about
        # (Those of requests that have ended since are passed over by who follows.)
        looked_at = bool(self._check_result_of or self._reasoning.free or len(tokens) < len(ids))
        if looked_at:
            gone: list[int] = []
            if launched.changes != walk.changes:
                gone = np.flatnonzero(walk.leases[slots] != leases).tolist()
            dropped, missed = self._results_to_drop(ids, gone, drawn, of_all=False)
            if missed:
                walk.missed(missed)
        try:
            if looked_at:
                dropped, asked = self._reasoning.take(walk, ids, slots, drawn, dropped)
            if dropped:
                ids, drawn = _without(ids, dropped), _without(drawn, dropped)
                slots, leases = np.delete(slots, dropped), np.delete(leases, dropped)
                tokens = array("i", chain.from_iterable(drawn))
            taken = walk.take(slots, leases, tokens, launched.clock)
            if self._may_jump:
                self._jump(walk, ids, slots, taken.flags, drawn)
        except Exception:
            logger.exception("following the GPU failed; these requests end, and others wait for the CPU from now on")
            for slot in slots[walk.leases[slots] == leases].tolist():
                if walk.grammars[slot] is not None:
                    walk.grammars[slot].fail("walk", RuntimeError("the GPU was not followed"))
            self._stop_walking()
            return
        if len(batch.ids) >= MIN_REQUESTS_TO_ASK or self._reasoning.free:  # (a reasoning parser takes its time)
            self._asked.after((*map(ids.__getitem__, taken.left), *map(batch.ids.__getitem__, asked)), walk.grammars)

    def _results_to_drop(
        self, ids: list[str], gone: Iterable[int], drawn: list[list[int]], *, of_all: bool
    ) -> tuple[list[int], int]:
        """(positions whose results are not to be followed, rising; how many repeat their step).

        gone: positions of requests that have ended since the step was launched; of_all: ask each.
        """
        ended = set(gone)
        positions_to_check = range(len(ids)) if of_all else [*ended, *_positions(map(not_, drawn))]
        dropped, missed = [], 0
        for i in self._with_requests_to_check(positions_to_check, ids):
            request_id = ids[i]
            if not drawn[i] or of_all or request_id in self._check_result_of:
                counts, again = self._counts(request_id, drawn[i])
                missed += again
                if not counts:
                    dropped.append(i)
                    continue
                if self._runs(request_id):  # else it will run its tokens again, maybe one of them in a step
                    self._check_result_of.discard(request_id)  # what was in flight has come, its tokens have been run
            if i in ended:
                dropped.append(i)
        return dropped, missed

    def _runs(self, request_id: str) -> bool:
        """Whether a request has not been preempted since the step whose result counts."""
        from vllm.v1.request import RequestStatus

        return bool(self.requests[request_id].status == RequestStatus.RUNNING)  # type: ignore[attr-defined]

    def _counts(self, request_id: str, token: list[int]) -> tuple[bool, bool]:
        """Whether the result that has come for a request counts, and whether the request has to repeat its step."""
        if self._jumps.was_certain(request_id):
            token.clear()
            return False, False
        request = self.requests.get(request_id)  # type: ignore[attr-defined]
        if request is None or request.is_finished():
            return False, False
        if not token:
            return False, step_again(request)
        return not is_dropped(request), False

    def _jump(self, walk: Any, ids: list[str], slots: Int32, flags: Int32, sampled: list[list[int]]) -> None:
        """Enter what is forced after the tokens that these requests have sampled (see `jump_forward`)."""
        from vllm.v1.request import RequestStatus

        found = []
        for i in np.nonzero((flags & (LOOKED_AT | FORCED)) != LOOKED_AT)[0].tolist():
            slot = int(slots[i])
            grammar = walk.grammars[slot]
            request = self.requests[ids[i]]  # type: ignore[attr-defined]
            if not grammar.followed or grammar.failed or request.status != RequestStatus.RUNNING:
                continue
            if grammar.guide.remembers:
                continue
            try:
                forced = self._jumps.room(request, walk.spelling(slot))
            except SpecError as error:
                grammar.fail("forced text", error)
                continue
            if forced:
                found.append((request, slot, forced, sampled[i]))
        if found and self._jumps.pays([forced for _, _, forced, _ in found], self):
            for request, slot, forced, token in found:
                walk.jump(slot, forced)
                self._jumps.enter(request, token, forced)
                self._check_result_of.add(request.request_id)
            self._jumps.report(self._walk_of.compiler.metrics)

    def _stop_walking(self) -> None:
        self._walk.leave()
        self._walk.close()
        self._walk = self._walk_of.walk = None

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._jumps.forget(request.request_id)
        self._reasoning.forget(request.request_id)
        self._check_result_of.discard(request.request_id)
        if self._walk is not None:
            self._walk.release(request.request_id)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def _positions(holds: Iterable[bool]) -> Iterable[int]:
    """Where something holds. (With `map` and `operator` none of this is Python, which a step of hundreds feels.)"""
    return compress(count(), holds)


def _without(values: list[T], places: list[int]) -> list[T]:
    """``values`` but those at ``places``, which rise; the list itself if these are all."""
    if not places:
        return values
    kept = values.copy()
    for i in reversed(places):
        del kept[i]
    return kept


def is_dropped(request: Any) -> bool:
    """Whether vLLM drops the result that has come for ``request``: it was in flight when the request was preempted."""
    if getattr(request, "async_tokens_to_discard", 0) > 0:  # until 0.27
        return True
    return getattr(request, "num_stale_output_tokens", 0) > 0 and request.drop_stale_output


def step_again(request: Any) -> bool:
    """Account for a step of ``request`` that sampled nothing, as vLLM does for a rejected draft token. Whether the
    request will repeat it: what was in flight at a preemption has been taken out of the books then."""
    if getattr(request, "async_tokens_to_discard", 0) > 0:
        request.async_tokens_to_discard -= 1
        return False
    if getattr(request, "num_stale_output_tokens", 0) > 0:
        return False
    if request.num_computed_tokens > 0:
        request.num_computed_tokens -= 1
    if request.num_output_placeholders > 0:
        request.num_output_placeholders -= 1
    return True


def may_jump(config: Any) -> bool:
    """Whether forced text is entered into requests (see `jump_forward`), in an engine where the GPU walks.

    config: vLLM's ``VllmConfig``.
    """
    if coalescence() != "canonical":
        return False
    try:
        jump_forward.wrap_add_requests()
    except Exception as error:  # whatever a foreign version of vLLM makes of it
        logger.warning("forced text is generated token by token: %s: %s", type(error).__name__, error)
        return False
    logger.info("coalescence: canonical, without speculation")
    mode = config.compilation_config.cudagraph_mode
    if mode is not None and mode.mixed_mode().name == "FULL":
        logger.warning(
            "cudagraph_mode FULL: with graphs for steps of several tokens a request, vLLM 0.26 with FlashAttention 3 "
            "returned NaN for single requests now and then; these end with an error (docs/performance.md)"
        )
    return True


def why_not(scheduler: Any) -> str:
    """Why the GPU cannot walk in this engine; "" if it can."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    config = scheduler.vllm_config
    checks = (
        (not gpu_walk(), "switched off"),
        (not isinstance(scheduler, AsyncScheduler), "scheduling is not asynchronous"),
        (not getattr(config, "use_v2_model_runner", False), "not the V2 model runner"),
        (config.speculative_config is not None, "speculative decoding"),
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline stages"),
        # (Ranks get parts of a prompt, and a batch put together again for sampling; nobody has tried it.)
        (getattr(config.parallel_config, "prefill_context_parallel_size", 1) > 1, "prefill context parallelism"),
        (worker_hooks.shards_batch(config.parallel_config), "batch-sharded sampling"),
        (getattr(scheduler, "connector", None) is not None, "a KV connector"),
        (has_recurrent_state(scheduler), "the model has a recurrent state, which takes each token once"),
    )
    reason = next((reason for applies, reason in checks if applies), "")
    return (
        reason
        or reasoning.why_not(scheduler)
        or manager_hook.why_not(scheduler.structured_output_manager)
        or sampling.fault()
    )


def begin(scheduler: Any, backend: Any) -> Any:
    """The `walk.Walk` for ``backend``, or None."""
    from dotllm.vllm_plugin.gpu.walk import Walk
    from dotllm.vllm_plugin.gpu_masks.rows import RowSender

    if backend_of(scheduler.structured_output_manager) is None:
        return None
    if backend.walk is not None:
        return backend.walk
    reason = why_not(scheduler)
    logger.info("the GPU follows the grammars: %s", f"no ({reason})" if reason else "yes")
    if reason:
        return None
    if not backend.row_sender:
        backend.row_sender = RowSender(backend.token_space)
    # The host launches every step of a GPU, and the prompt's takes Python longer than a compile does.
    backend.compiler.spare_the_loop()
    slots = scheduler.vllm_config.scheduler_config.max_num_seqs
    backend.walk = Walk(backend.token_space, backend.row_sender, max(16, slots))
    return backend.walk


def _apply() -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    gpu_walk()
    for name in ("_update_after_schedule", "get_grammar_bitmask", "update_from_output", "_free_request"):
        if not hasattr(AsyncScheduler, name):
            raise AttributeError(f"AsyncScheduler has no {name}")
    worker_hooks.on_v2_runner(sampling.wrap)
    worker_hooks.on_v2_runner(jump_forward.wrap_add_requests)
    scheduler_class.add(WalkScheduler)


_SCHEDULER = "vllm.v1.core.sched.scheduler"

HOOK = Hook(
    name="gpu-walk",
    summary="the GPU follows the grammars, so that asynchronous scheduling keeps its overlap",
    targets=(
        *scheduler_class.TARGETS,
        Target(
            "vllm.v1.core.sched.async_scheduler", "AsyncScheduler._update_after_schedule", ("self", "scheduler_output")
        ),
        Target(_SCHEDULER, "Scheduler.get_grammar_bitmask", ("self", "scheduler_output")),
        Target(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output", "model_runner_output")),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        *sampling.TARGETS,
        *jump_forward.TARGETS,
    ),
    apply=_apply,
    required=False,
    without_it="a constrained step waits for the tokens of the step before, as in vLLM",
)
