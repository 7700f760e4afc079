"""Canonical coalescence: forced text is entered into a request, not generated ("jump-forward decoding").

Where the grammar allows one text only, and its spelling is fixed too, the tokens that come next are known without
asking the model: sampling under the mask would give each with certainty. So the engine core appends these tokens to the
request as soon as it knows them. The next step runs all of them through the model, like the end of a prompt, and
samples the token that follows. Nothing is drafted and nothing verified, so no speculative configuration is needed;
asynchronous scheduling is kept, and requests without constraints pay nothing.
(https://lmsys.org/blog/2024-02-05-compressed-fsm/, whose doubts about re-tokenisation do not arise: the spelling is the
one that the masks of this mode would have forced.)

To vLLM it looks as if step n had produced several tokens, as accepted drafts do: they are appended to its result
before the scheduler reads it, which looks for stops, moves the grammar and sends them out.

With asynchronous scheduling, step n + 1 is already running when the result of step n arrives. Step n + 1 runs the token
that step n sampled, and this counts. It then samples the first forced token, which is already known, so its result is
not needed. We mark this result as vLLM marks results that were in flight at a preemption, and vLLM drops it. Step n + 2
runs all forced tokens.
"""

from __future__ import annotations

import logging

from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.extras import GIVEN
from dotllm.vllm_plugin.enforce.request_state import tokens_left
from dotllm.vllm_plugin.enforce.scheduler import FORCED, Part, takes_part
from dotllm.vllm_plugin.extra.coalescence import runners
from dotllm.vllm_plugin.extra.coalescence.coalesced import spelling, why_not
from dotllm.vllm_plugin.extra.coalescence.rule import Found, Rule
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.vllm_types import ModelRunnerOutput, Request, Scheduler, SchedulerOutput

logger = logging.getLogger(__name__)

STEPS_TO_LOOK_AGAIN = 32
"""Where entering text did not pay, nobody looks for as many steps as this goes into the number of requests: looking
takes time for each, and what has come together by the next step is little."""


class JumpForward(Part):
    """Enters forced text after the grammars have accepted the tokens of a step."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        config = scheduler.vllm_config
        reason = why_not(config)
        logger.info("coalescence: %s", f"no ({reason})" if reason else "canonical")
        self._enters_text = not reason
        self.pays = Rule(config.compilation_config, config.model_config)
        self._pause = 0  # steps
        self._grown: list[Request] = []
        """Requests that text was entered into in the results that are read"""
        self._entered: dict[str, int] = {}
        """by request the position from which on the model runner does not know its tokens yet"""

    def results_came(self, step: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """Append the forced text after the tokens of ``step`` to them."""
        self._grown = self._enter(output) if self._enters_text else []

    def results_read(self) -> None:
        """Mark the results in flight of requests into which text was entered: they do not count."""
        for request in self._grown:
            if request.num_in_flight_tokens and not request.is_finished():
                request.num_stale_output_tokens = request.num_in_flight_tokens
                request.drop_stale_output = True
        self._grown = []

    def _enter(self, output: ModelRunnerOutput) -> list[Request]:
        """Append forced tokens to the results; the requests that have got some."""
        running = len(self.scheduler.running)
        prompt_comes = bool(self.scheduler.waiting) and running < self.scheduler.max_num_running_reqs
        if not self.pays.may_pay(running, prompt_comes=prompt_comes):
            return []
        if self._pause and not prompt_comes:
            self._pause -= 1
            return []
        found = self._find(output)
        chosen = self.pays(found, running, prompt_comes=prompt_comes)
        if found and not chosen:
            self._pause = running // STEPS_TO_LOOK_AGAIN
        requests = []
        for one in chosen:
            request = self.scheduler.requests[output.req_ids[one.position]]
            self._append(request, output.sampled_token_ids[one.position], one)
            requests.append(request)
        backend = backend_of(self.scheduler.structured_output_manager)
        if chosen and backend is not None:
            metrics = backend.compiler.metrics
            metrics.add("dotllm_forced_tokens", amount=float(sum(len(one.tokens) for one in chosen)))
            metrics.add("dotllm_steps_saved", amount=float(sum(one.steps_saved for one in chosen)))
        return requests

    def _find(self, output: ModelRunnerOutput) -> list[Found]:
        """The forced tokens after those of a step, as far as each request may continue."""
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

        manager = self.scheduler.structured_output_manager
        reasons = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        found = []
        for position, (name, sampled) in enumerate(zip(output.req_ids, output.sampled_token_ids, strict=False)):
            request = self.scheduler.requests.get(name)
            if request is None or request.structured_output_request is None or len(sampled) != 1:
                continue
            structured = request.structured_output_request
            if reasons and not structured.reasoning_ended:
                continue
            grammar = structured._grammar
            if type(grammar) is not RequestGrammar or not grammar.spells_forced_text:
                continue
            in_flight = request.num_output_placeholders > 1
            counts = request.status is RequestStatus.RUNNING and not request.num_stale_output_tokens
            tokens = grammar.forced_after(sampled[0], self._room(request)) if counts else ()
            if len(tokens) > in_flight:
                tokens = tokens[: max(0, self._room(request))]
                if len(tokens) > in_flight:
                    found.append(Found(position, grammar, tokens, len(tokens) - in_flight))
        return found

    def _room(self, request: Request) -> int:
        """The number of tokens that ``request`` may have after the sampled one."""
        return tokens_left(request, self.scheduler.max_model_len) - 1

    def _append(self, request: Request, sampled: list[int], one: Found) -> None:
        """Let the step that sampled ``sampled`` have produced forced tokens as well, and nothing be in flight."""
        if one.grammar.accepted_ahead:
            one.grammar.accept_forced(one.tokens)  # (else vLLM lets it take all that has been produced)
        self._entered.setdefault(request.request_id, request.num_tokens)
        if request.num_output_placeholders:  # asynchronous: of the result that has come, and of those in flight
            request.num_output_placeholders = 1 + len(one.tokens)
        sampled.extend(one.tokens)

    def scheduled(self, step: SchedulerOutput) -> None:
        """``step`` tells the model runner of what it runs and does not know."""
        if self._entered:
            sent = []
            for name in [name for name in self._entered if name in step.num_scheduled_tokens]:
                start, request = self._entered.pop(name), self.scheduler.requests[name]
                tokens = list(request.all_token_ids[start:])
                sent.append(runners.Entered(name, start, tokens, request.num_computed_tokens))
            if sent:
                setattr(step, runners.ENTERED, sent)

    def ended(self, request: Request) -> None:
        """Nothing more is sent of it."""
        self._entered.pop(request.request_id, None)


def _enter_text_where_workers_take_it() -> None:
    runners.HOOK.check()
    takes_part(FORCED, JumpForward)()
    GIVEN.spelling = spelling


HOOK = Hook(
    name="jump-forward",
    summary="forced text is entered into requests, not generated",
    apply=_enter_text_where_workers_take_it,
    without_it="forced text is generated token by token",
)
