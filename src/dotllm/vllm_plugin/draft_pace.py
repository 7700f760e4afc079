"""Drafts of constrained requests are verified where that pays, and dropped where it does not.

A user's own speculative method (ngram, EAGLE, …) drafts for constrained requests as for others. JSON repeats itself, so
ngram almost always has something to propose; but what fits the grammar is of every length, so that the steps fit none
of vLLM's graphs of uniform ones, and whole batches wait for the drafts of a few. So before drafts are checked against
the grammar and scheduled, we compare what they are expected to save (`draft_shares`) with what they cost
(`step_times`): all are dropped, or all are kept, or as many as fit into vLLM's largest graph, the most promising first.
The forced tokens of coalescence are drafts like others here. Where all have been dropped for a while, n-grams
are not even looked for in most steps (`seldom_drafts`).

Which drafts are verified changes nothing but the number of steps: rejection sampling gives the same distribution of
tokens whatever is drafted. Drafts of unconstrained requests are left alone; where they make the step what it
is, ours go along.

Only with synchronous scheduling. Asynchronously vLLM schedules the same number of drafts for every request and fills
them in on the device.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from dotllm.vllm_plugin.draft_shares import AT_ONCE, PRIOR, DraftShares
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.engine_core.scheduler import graph_tokens
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.seldom_drafts import Asking, can
from dotllm.vllm_plugin.settings import coalescence, drafts_always
from dotllm.vllm_plugin.step_times import Option, StepTimes

logger = logging.getLogger(__name__)


Draft = tuple[Any, Sequence[int]]
"""A request, and what is proposed to follow its tokens."""


class DraftPaceScheduler:
    """Goes before vLLM's scheduler, behind `coalescence.CoalescenceScheduler`, whose drafts it sees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        reason = why_not(self)
        logger.info("drafts of constrained requests: %s", f"all verified ({reason})" if reason else "where they pay")
        self.draft_pace = None if reason else DraftPace(self, graph_tokens(self))

    def idles(self) -> bool:
        """Whether all drafts are verified in this engine (see `scheduler_class`)."""
        return self.draft_pace is None

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Drafts of the user's method have come, for the next step."""
        pace = self.draft_pace
        if pace is None or not is_ours(self):
            super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]  # the class after us has it
            return
        if not pace.asking.asked:  # there are none
            return
        left, kept = pace.judge_proposed(draft_token_ids)
        super().update_draft_token_ids(left)  # type: ignore[misc]
        pace.were_checked(kept)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step."""
        pace = self.draft_pace
        if pace is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        pace.step_begins()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        pace.step_is(output)
        return output

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if self.draft_pace is not None:
            self.draft_pace.forget(request.request_id)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


class DraftPace:
    """What `DraftPaceScheduler` knows and decides."""

    def __init__(self, scheduler: Any, graph_tokens: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """graph_tokens: of the largest step that vLLM has a graph for; ``clock`` in seconds."""
        self.times = StepTimes(graph_tokens)
        self.clock = clock
        self.tokens_dropped = 0
        self.asking = Asking()
        self._scheduler = scheduler
        self._may_ask_seldom = can(scheduler)
        self._shares = DraftShares()
        self._forced_shares = DraftShares((1.0, 1.0) if coalescence() == "canonical" else PRIOR)
        self._valid_share = 1.0  # of draft tokens, by the grammar
        self._step: tuple[int, int, int] | None = None  # requests, tokens and drafts of the step that runs
        self._step_began = 0.0
        self._blocked = False  # whether requests wait for something else than a place in the batch

    def judge_proposed(self, draft_token_ids: Any) -> tuple[Any, list[Draft]]:
        """(``draft_token_ids`` without what does not pay, the constrained requests' drafts that are left)."""
        drafts: list[Draft] = []
        left: tuple[list[str], list[list[int]]] = ([], [])  # of unconstrained requests, or those that have ended
        total = others = 0
        requests = self._scheduler.requests
        coalesces = self._coalesces()
        pays = False
        for name, tokens in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True):
            request = requests.get(name)
            if request is None or not request.use_structured_output:
                left[0].append(name)
                left[1].append(tokens)
                if request is not None:
                    pays = True
                    others += 0 if request.is_prefill_chunk else len(tokens)
                continue
            # vLLM need not look at those that are dropped: no draft of theirs is left from one step to the next.
            if request.spec_token_ids and not coalesces:
                request.spec_token_ids = []
            if tokens and not request.is_prefill_chunk:
                drafts.append((request, tokens))
                total += len(tokens)
        self._shares.observe(drafts)
        if coalesces:  # forced tokens come when the step is scheduled; then all are judged
            return draft_token_ids, []
        kept: list[Draft] = []
        if drafts:
            # In a large batch, looking at each would take longer than it is worth.
            many = len(drafts) > AT_ONCE
            saved = self._shares.overall * total if many else sum(map(self._saved_by_proposed, drafts))
            kept = self._keep(drafts, self._saved_by_proposed, saved, total, others)
            pays = pays or (bool(kept) and not self.times.tries)
        self.asking.judged(pays=pays)
        left[0].extend(request.request_id for request, _ in kept)
        left[1].extend(tokens for _, tokens in kept)  # type: ignore[misc]
        return type(draft_token_ids)(*left), kept

    def were_checked(self, kept: list[Draft]) -> None:
        """vLLM has taken from ``kept`` what does not fit the grammars."""
        if kept:
            valid = sum(len(request.spec_token_ids) for request, _ in kept) / sum(len(tokens) for _, tokens in kept)
            self._valid_share += 0.1 * (valid - self._valid_share)

    def step_begins(self) -> None:
        """The step before has ended, and another is about to be scheduled."""
        now = self.clock()
        if self._step is not None and self._scheduler.running:  # else the engine may have waited for a request
            self.times.learn(*self._step, now - self._step_began)
        self._step_began = now
        if self._coalesces() and is_ours(self._scheduler):
            self._judge_all()

    def step_is(self, output: Any) -> None:
        """``output`` has been scheduled."""
        scheduler = self._scheduler
        self._blocked = scheduler.waiting and len(scheduler.running) < scheduler.max_num_running_reqs
        drafts = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        tokens = output.total_num_scheduled_tokens - drafts
        self._step = (len(output.num_scheduled_tokens), tokens, drafts) if tokens else None
        if self._may_ask_seldom and tokens:
            self._ask_after(output, drafts)

    def _ask_after(self, output: Any, drafts: int) -> None:
        """Say how many tokens are to be drafted behind the step: none, while they do not pay."""
        new = [one.req_id for one in output.scheduled_new_reqs]
        if any(not self._scheduler.requests[name].use_structured_output for name in new):
            self.asking.judged(pays=True)
        if not self.asking.step(len(output.num_scheduled_tokens), drafts):
            output.num_spec_tokens_to_schedule = 0

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._shares.forget(request_id)
        self._forced_shares.forget(request_id)

    def _judge_all(self) -> None:
        """Of the drafts in the requests, forced tokens among them, keep those that pay."""
        drafts: list[Draft] = []
        forced_drafts: list[Draft] = []
        total = others = 0
        for request in self._scheduler.running:
            tokens = request.spec_token_ids
            if not tokens:
                continue
            if not request.use_structured_output:
                others += len(tokens)
                continue
            drafts.append((request, tokens))
            total += len(tokens)
            forced = self._scheduler.forced_in_draft(request.request_id)
            if forced:
                forced_drafts.append((request, tokens[:forced]))
        self._forced_shares.observe(forced_drafts)
        if not drafts:
            return
        saved = sum(map(self._saved_with_forced, drafts))
        kept = {request.request_id for request, _ in self._keep(drafts, self._saved_with_forced, saved, total, others)}
        for request, _ in drafts:
            if request.request_id not in kept:
                request.spec_token_ids = []

    def _saved_by_proposed(self, draft: Draft) -> float:
        return self._shares.expected(draft[0].request_id, len(draft[1]))

    def _saved_with_forced(self, draft: Draft) -> float:
        name, tokens = draft[0].request_id, len(draft[1])
        forced: int = self._scheduler.forced_in_draft(name)
        if not forced:
            return self._shares.expected(name, tokens)
        saved = self._forced_shares.expected(name, forced)
        return saved + saved / forced * self._shares.expected(name, tokens - forced)

    def _keep(
        self, drafts: list[Draft], saved_by: Callable[[Draft], float], saved: float, total: int, others: int
    ) -> list[Draft]:
        """Those of ``drafts`` that pay: ``saved_by`` says what each saves, ``saved`` what all do.

        ``total`` is the number of their tokens, ``others`` that of draft tokens of unconstrained requests.
        """
        times, tokens = self.times, self._tokens_ahead()
        room, valid = times.graph_tokens - tokens - others, self._valid(total)
        options = [Option(saved, times.kind(tokens, others + valid))]
        if 0 < room < valid:
            options.append(Option(saved * room / valid, times.kind(tokens, others + room)))
        chosen = times.choose(len(self._scheduler.running), options, times.kind(tokens, others), self.asking.steps)
        if chosen == 0:
            return drafts
        kept = [] if chosen is None else self._fitting(drafts, saved_by, room)
        dropped = total - sum(len(draft) for _, draft in kept)
        self.tokens_dropped += dropped
        backend = backend_of(self._scheduler.structured_output_manager)
        if backend is not None:
            backend.compiler.metrics.add("dotllm_drafts_dropped", amount=float(dropped))
        return kept

    def _fitting(self, drafts: list[Draft], saved_by: Callable[[Draft], float], room: int) -> list[Draft]:
        """The most promising of ``drafts`` that ``room`` tokens hold."""
        some, tokens = [], 0
        for draft in sorted(drafts, key=lambda draft: saved_by(draft) / len(draft[1]), reverse=True):
            tokens += len(draft[1])
            if self._valid(tokens) > room:
                break
            some.append(draft)
        return some

    def _valid(self, tokens: int) -> int:
        """Of so many draft tokens, those that will be left when the grammars have seen them."""
        return tokens if self._coalesces() else math.ceil(tokens * self._valid_share)

    def _tokens_ahead(self) -> int:
        """Tokens of the next step besides drafts: one for each request, and what is left of prompts."""
        scheduler = self._scheduler
        free = 0 if self._blocked else max(0, scheduler.max_num_running_reqs - len(scheduler.running))
        prompts = [*(r for r in scheduler.running if r.is_prefill_chunk), *islice(scheduler.waiting, free)]
        left = sum(max(1, r.num_tokens - r.num_computed_tokens) - 1 for r in prompts)
        tokens: int = min(len(scheduler.running) + left, scheduler.max_num_scheduled_tokens)
        return tokens

    def _coalesces(self) -> bool:
        return bool(getattr(self._scheduler, "_most_drafts", 0))


def why_not(scheduler: Any) -> str:
    """Why drafts are all verified in this engine; "" if they are where it pays."""
    config = scheduler.vllm_config
    if config.speculative_config is None:
        return "there are none: no speculative_config"
    if drafts_always():
        return "DOTLLM_DRAFTS=always"
    if config.scheduler_config.async_scheduling:
        return "scheduling is asynchronous"
    if config.parallel_config.pipeline_parallel_size > 1:
        return "several steps are in flight (pipeline parallelism)"
    if getattr(config.model_config, "is_diffusion", False):
        return "the model is a diffusion model"
    return ""


def is_ours(scheduler: Any) -> bool:
    """Whether grammars are ours by now (the engine's first constrained request decides)."""
    return backend_of(scheduler.structured_output_manager) is not None


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    for name in ("schedule", "update_draft_token_ids", "_free_request"):
        if not hasattr(Scheduler, name):
            raise AttributeError(f"Scheduler has no {name}")
    scheduler_class.add(DraftPaceScheduler)


_SCHEDULER = "vllm.v1.core.sched.scheduler"

HOOK = Hook(
    name="draft-pace",
    summary="drafts of constrained requests are verified where that pays",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.schedule", ("self",)),
        Target(_SCHEDULER, "Scheduler.update_draft_token_ids", ("self", "draft_token_ids")),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        *(
            Target(_SCHEDULER, f"Scheduler.__init__@{name}")
            for name in ("running", "waiting", "max_num_running_reqs", "max_num_scheduled_tokens")
        ),
        Target("vllm.v1.outputs", "DraftTokenIds.req_ids:"),
        Target("vllm.v1.outputs", "DraftTokenIds.draft_token_ids:"),
        Target("vllm.v1.core.sched.output", "SchedulerOutput.scheduled_spec_decode_tokens:"),
        Target("vllm.v1.core.sched.output", "SchedulerOutput.num_spec_tokens_to_schedule:"),
        Target("vllm.v1.core.sched.output", "SchedulerOutput.scheduled_new_reqs:"),
        Target("vllm.v1.core.sched.output", "NewRequestData.req_id:"),
        Target("vllm.v1.request", "Request.__init__@spec_token_ids"),
        Target("vllm.v1.request", "Request.__init__@is_prefill_chunk"),
    ),
    apply=_apply,
    required=False,
    without_it="a user's speculative method can make constrained requests slower than no speculation",
)
