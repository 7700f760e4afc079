"""Lets all grammars accept the tokens of a step in one call, and validate drafts in another.

vLLM asks one grammar after another for its mask, and to accept its token. That takes 0.6 ms of a step of 256 requests,
most of it on the way into the engine and back. Here the guides of plain requests run as arrays (`index.running`), from
their first mask to their end, and vLLM's own calls are not needed. Other grammars (with stop tokens, a limit, a
spelling of forced text, drafts) accept their tokens in one call, too (`advance_along`), and vLLM's calls find that
done: `RequestGrammar.accepted_ahead`. With speculation, vLLM first asks which drafts the grammar allows:
`RequestGrammar.allowed_ahead`. Special cases are left to vLLM's per-request calls: stop tokens, tokens that a grammar
does not allow or that come after its end, guides that remember, requests that reason, and results that may not count:
those in flight when their request was preempted, and those of a step whose KV blocks could not all be loaded.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.scheduler import Part
from dotllm.vllm_plugin.speed.look_ahead import early_tokens
from dotllm.vllm_plugin.vllm_types import (
    DraftTokenIds,
    GrammarOutput,
    ModelRunnerOutput,
    Request,
    Scheduler,
    SchedulerOutput,
)

if TYPE_CHECKING:
    from dotllm.arrays import Int32
    from dotllm.device_masks.message import MaskRows
    from dotllm.device_masks.sender import StepMasks
    from dotllm.index.running import Running
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
    from dotllm.vllm_plugin.speed.slow_steps import SlowSteps

logger = logging.getLogger(__name__)

MIN_BATCH = 8  # requests; fewer are not worth it
WAIT_S = 0.001
"""How long the masks of a step wait for threads; the engine has already spent about as long on each of these masks."""


class BatchAccept(Part):
    """Lets grammars accept the tokens of a step, and validates drafts, before vLLM asks each of them."""

    def __init__(self, scheduler: Scheduler) -> None:
        from vllm.v1.core.sched.output import GrammarOutput
        from vllm.v1.request import RequestStatus

        super().__init__(scheduler)
        config, manager = scheduler.vllm_config, scheduler.structured_output_manager
        self._accepts_batches = not config.model_config.is_diffusion  # (this has not been tried)
        self._may_reason = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        self._accepted: list[RequestGrammar] = []
        self._validated: list[RequestGrammar] = []
        self._is_running, self._output = RequestStatus.RUNNING, GrammarOutput
        self._running: Running | None = None  # guides, by the name of their request
        self._slow: SlowSteps | None = None  # steps of other plain guides
        self._sent: MaskRows | Int32 | None = None  # the masks of the last step
        self._sender: StepMasks | None = None

    def begin_step(self) -> None:
        """The indexes are needed from now on. (No exception may reach vLLM's loop; a look changes nothing.)"""
        if self._running is not None:
            try:
                self._running.end_look()
            except Exception:
                logger.exception("could not end a look ahead; the step finds its masks")

    def scheduled(self, step: SchedulerOutput) -> None:
        """Look ahead while ``step`` is launched, if the tokens of the step before it have arrived."""
        results, self._sent = getattr(self._sent, "results", None), None
        if self._running is None or results is None or not step.total_num_scheduled_tokens:
            return
        if not self._running.is_worth_a_look:
            return
        try:
            early = early_tokens(results)
            if early is not None:
                self._running.look_ahead(*early)
        except Exception:
            logger.exception("could not look ahead; the step finds its masks")

    def masks(self, step: SchedulerOutput) -> GrammarOutput | None:
        """The masks of a step without drafts. The guides of its plain requests run from now on."""
        sender, drafts = self._find_sender(), self.scheduler.num_spec_tokens or step.scheduled_spec_decode_tokens
        if not (self._accepts_batches and step.has_structured_output_requests and sender is not None) or drafts:
            return None
        if self._running is None:
            from dotllm.index.running import Running
            from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
            from dotllm.vllm_plugin.speed.slow_steps import slow_steps

            self._running, self._slow, self._ours = Running(sender.space), slow_steps(self.scheduler), RequestGrammar
        try:
            result: GrammarOutput | None = self._masks_of([*step.num_scheduled_tokens], self._running, sender)
            self._sent = None if result is None else result.grammar_bitmask
            return result
        except Exception:
            logger.exception("could not find a step's masks in one call; vLLM asks for each")
            return None

    def masks_found(self, step: SchedulerOutput, masks: GrammarOutput | None) -> None:
        """The masks of ``step`` go to the workers."""
        if (sender := self._find_sender()) is not None:
            sender.sent_with(step)

    def _find_sender(self) -> StepMasks | None:
        """The sender of the engine's masks, which stays the same; None before its first masks."""
        if self._sender is None and (backend := backend_of(self.scheduler.structured_output_manager)) is not None:
            self._sender = backend.step_masks
        return self._sender

    def _masks_of(self, names: list[str], running: Running, sender: StepMasks) -> Any:
        """The masks of a step's requests. A row is found in one of three ways: the guide runs; a thread finds it; or
        the grammar is asked. None: no request is constrained, or vLLM must ask all of them."""
        slow, until = self._slow, time.perf_counter() + WAIT_S
        if slow is not None and slow.steps:
            slow.settle(self._waiting(names, slow), running, until)
        for i in running.absent(names):
            self._run_if_plain(names[i], running)
        absent = running.absent(names)
        rows, missing = running.rows(names)
        if missing or (slow is not None and slow.steps):
            late = {} if slow is None else self._late(names, {*missing}.difference(absent), running, slow, until)
            asked = self._asked(names, [i for i in missing if i not in late], sender)
            if asked is None:
                return None
            has_row, others = np.ones(len(names), np.bool_), late | asked
            has_row[missing] = False
            has_row[[*others]], rows[[*others]] = True, [*others.values()]
            names, rows = [*compress(names, has_row.tolist())], rows[has_row]
        return self._output(names, sender.message(None, rows)) if names else None

    def _asked(self, names: list[str], positions: list[int], sender: StepMasks) -> dict[int, int] | None:
        """The rows of the constrained requests among those at ``positions``; None if a grammar is another backend's."""
        asked = {i: request for i in positions if (request := self._constrained(names[i]))}
        if not asked:
            return {}
        from dotllm.vllm_plugin.speed.rows import rows_asked

        rows = rows_asked(self.scheduler.structured_output_manager, sender, [*asked.values()])
        return None if rows is None else dict(zip(asked, rows[1].tolist(), strict=True))

    def _late(
        self, names: list[str], not_found: set[int], running: Running, slow: SlowSteps, until: float
    ) -> dict[int, int]:
        """The rows of masks that threads have found, by position. Threads find those at ``not_found``, too."""
        for i in not_found:
            if (plain := self._plain(names[i], running)) is not None:
                slow.begin_for(*plain)
        if not slow.steps:
            return {}
        slow.settle(self._waiting(names, slow), running, until)
        late = slow.rows(self._waiting(names, slow))
        return {i: late[name] for i, name in enumerate(names) if name in late}

    def _waiting(self, names: list[str], slow: SlowSteps) -> list[str]:
        """Those of ``names`` whose masks threads find."""
        return [name for name in names if name in slow.steps and self._constrained(name)]

    def _constrained(self, name: str) -> Request | None:
        """The request of this name, if its next token is constrained."""
        request = self.scheduler.requests.get(name)
        is_asked = request is not None and request.use_structured_output and not request.is_prefill_chunk
        return request if is_asked else None

    def _plain(self, name: str, running: Running) -> tuple[Request, RequestGrammar] | None:
        """The request of this name and its grammar, if its guide may run."""
        request = self._constrained(name)
        if request is None or request.structured_output_request is None:
            return None
        grammar = request.structured_output_request.grammar
        is_plain = (
            type(grammar) is self._ours
            and (grammar.has_begun or grammar.begin())
            and grammar.is_plain
            and self._takes(request, grammar)
            and grammar.guide.index.space is running.space
        )
        return (request, grammar) if is_plain else None

    def _run_if_plain(self, name: str, running: Running) -> None:
        slow = self._slow
        if (slow is not None and name in slow.steps) or (plain := self._plain(name, running)) is None:
            return
        request, grammar = plain
        if slow is not None and slow.is_slow(grammar.guide.index.lock):
            slow.begin_for(request, grammar)
        else:
            running.enter(name, grammar.guide)
            grammar.stop_running = partial(running.leave, name)

    def held(self) -> set[str]:
        """The requests whose steps are slow."""
        return self._slow.held() if self._slow is not None and self._slow.steps else set()

    def ended(self, request: Request) -> None:
        """The guide of ``request`` no longer runs."""
        self.begin_step()
        if self._running is not None:
            self._running.leave(request.request_id)

    def results_came(self, step: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """Accept the tokens of ``step``, one or more for each grammar. The workers have the rows that went with it."""
        if self._sender is not None:
            self._sender.arrived(step)
        self.begin_step()
        names, tokens = output.req_ids, output.sampled_token_ids
        loads = output.kv_connector_output
        if loads is not None and loads.invalid_block_ids:  # only vLLM knows whose results do not count
            if self._running is not None:
                for name in [*self._running]:
                    self._running.leave(name)
            return
        if tokens and self._running is not None and (self._running or (self._slow is not None and self._slow.steps)):
            names, tokens = self._take(names, tokens, self._running)
        asks = names and step.has_structured_output_requests
        self._accepted = accept(*self._ready(names, tokens)) if asks else []

    def _take(self, names: list[str], tokens: list[list[int]], running: Running) -> tuple[list[str], list[list[int]]]:
        """Let the guides that run take their tokens; vLLM then asks nothing about these. Returns the others."""
        manager, requests, slow = self.scheduler.structured_output_manager, self.scheduler.requests, self._slow
        asked: list[tuple[Request, RequestGrammar, int]] = []
        try:
            if slow is not None and slow.steps:
                slow.leave_running(running)
            others = [i for i in running.take(names, tokens) if requests.get(names[i]) is not None]
            if others and slow is not None:
                asked = [
                    (*plain, tokens[i][0])
                    for i in others
                    if len(tokens[i]) == 1 and (plain := self._plain(names[i], running)) is not None
                ]
                done = slow.advance(asked) if asked else ()
                others = [i for i in others if names[i] not in done]
        except Exception as error:  # it is not known which guides have moved
            for name in {*running, *(request.request_id for request, _, _ in asked)}:
                requests[name].structured_output_request.grammar.fail("accept", error)  # type: ignore[union-attr]
            return names, tokens
        if not others:
            vars(manager)["accept_tokens"] = lambda request, own: True
            return [], []
        taken, accept_tokens = {*names}.difference([names[i] for i in others]), manager.accept_tokens
        vars(manager)["accept_tokens"] = lambda request, own: request.request_id in taken or accept_tokens(request, own)
        return [names[i] for i in others], [tokens[i] for i in others]

    def results_read(self) -> None:
        """The marks of accepted tokens are for this step only."""
        for grammar in self._accepted:
            grammar.accepted_ahead = False
        self._accepted = []  # (else a request that has ended would stay)
        vars(self.scheduler.structured_output_manager).pop("accept_tokens", None)

    def drafts_came(self, drafts: DraftTokenIds) -> None:
        """Find out how many of its drafts each grammar allows."""
        grammars, tokens = self._ready(drafts.req_ids, drafts.draft_token_ids)
        self._validated = grammars
        with suppress(Exception):  # vLLM's calls, one by one, meet the error again
            from dotllm.index.draft_rows import allowed_drafts

            allowed = allowed_drafts([grammar.guide for grammar in grammars], tokens)
            for grammar, count in zip(grammars, allowed, strict=True):
                grammar.allowed_ahead = -1 if grammar.stops else count

    def drafts_read(self) -> None:
        """The counts are for these drafts only."""
        for grammar in self._validated:
            grammar.allowed_ahead = -1
        self._validated = []

    def _ready(self, names: list[str], tokens: list[list[int]]) -> tuple[list[RequestGrammar], list[list[int]]]:
        """The grammars that may take tokens now, and the tokens of each; nothing if they are few."""
        from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

        find = self.scheduler.requests.get
        grammars, result = [], []
        for name, own in zip(names, tokens, strict=False) if self._accepts_batches else ():
            request = find(name)
            if request is None or not own or (structured := request.structured_output_request) is None:
                continue
            grammar = structured._grammar
            if type(grammar) is RequestGrammar and grammar.has_begun and self._takes(request, grammar):
                grammars.append(grammar)
                result.append(own)
        return (grammars, result) if len(result) >= MIN_BATCH else ([], [])

    def _takes(self, request: Request, grammar: RequestGrammar) -> bool:
        """Whether the grammar of ``request``, which has begun, takes the request's next token."""
        structured = request.structured_output_request
        return (
            not grammar.failed
            and not grammar.stopped
            and not grammar.guide.is_finished
            and request.status is self._is_running
            and not request.num_stale_output_tokens
            and not request.resumable
            and structured is not None
            and bool(structured.reasoning_ended or not self._may_reason)
        )


def accept(grammars: list[RequestGrammar], tokens: list[list[int]]) -> list[RequestGrammar]:
    """Let grammars accept their tokens, one or more. Returns those that did, as ``accepted_ahead``."""
    accepted: list[RequestGrammar] = []
    if not grammars:
        return accepted
    try:
        from dotllm.index.draft_rows import advance_along

        for grammar in compress(grammars, advance_along([grammar.guide for grammar in grammars], tokens)):
            grammar.accepted_ahead = True
            accepted.append(grammar)
    except Exception as error:  # no exception may reach vLLM's loop; it is not known which guides have moved
        for grammar in grammars:
            grammar.fail("accept", error)
    return accepted
