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
from typing import Any

from dotllm.vllm_plugin.answer_limit import tokens_left
from dotllm.vllm_plugin.engine_core import scheduler_mixins
from dotllm.vllm_plugin.engine_core.coalesced import why_not
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.hook import Target
from dotllm.vllm_plugin.jump_forward import runners
from dotllm.vllm_plugin.jump_forward.rule import Found, Rule
from dotllm.vllm_plugin.vllm_types import ModelRunnerOutput, Request, SchedulerMixin, SchedulerOutput

logger = logging.getLogger(__name__)

STEPS_TO_LOOK_AGAIN = 32
"""Where entering text did not pay, nobody looks for as many steps as this goes into the number of requests: looking
takes time for each, and what has come together by the next step is little."""


class JumpForwardScheduler(SchedulerMixin):
    """Goes before vLLM's scheduler, behind those of ours that change or take the results of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        reason = why_not(self.vllm_config)
        logger.info("coalescence: %s", f"no ({reason})" if reason else "canonical")
        self._enters_text = not reason
        self._pays = Rule(self.vllm_config.compilation_config, self.vllm_config.model_config)
        self._pause = 0  # steps
        self._entered: dict[str, int] = {}
        """by request the position from which on the model runner does not know its tokens yet"""

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        """The results of a step, and what is forced after them."""
        entered = self._enter(model_runner_output) if self._enters_text else ()
        result = super().update_from_output(scheduler_output, model_runner_output)
        for request in entered:
            if request.num_in_flight_tokens and not request.is_finished():
                request.num_stale_output_tokens = request.num_in_flight_tokens
                request.drop_stale_output = True
        return result

    def _enter(self, output: ModelRunnerOutput) -> list[Request]:
        """Append forced tokens to the results; the requests that have got some."""
        running = len(self.running)
        prompt_comes = bool(self.waiting) and running < self.max_num_running_reqs
        if not self._pays.may_pay(running, prompt_comes=prompt_comes):
            return []
        if self._pause and not prompt_comes:
            self._pause -= 1
            return []
        found = self._find(output)
        chosen = self._pays(found, running, prompt_comes=prompt_comes)
        if found and not chosen:
            self._pause = running // STEPS_TO_LOOK_AGAIN
        requests = []
        for one in chosen:
            request = self.requests[output.req_ids[one.position]]
            self._append(request, output.sampled_token_ids[one.position], one)
            requests.append(request)
        backend = backend_of(self.structured_output_manager)
        if chosen and backend is not None:
            metrics = backend.compiler.metrics
            metrics.add("dotllm_forced_tokens", amount=float(sum(len(one.tokens) for one in chosen)))
            metrics.add("dotllm_steps_saved", amount=float(sum(one.steps_saved for one in chosen)))
        return requests

    def _find(self, output: ModelRunnerOutput) -> list[Found]:
        """What is forced after the tokens of a step, as far as each request may go on."""
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

        manager = self.structured_output_manager
        reasons = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        found = []
        for position, (name, sampled) in enumerate(zip(output.req_ids, output.sampled_token_ids, strict=False)):
            request = self.requests.get(name)
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
        """How many tokens ``request`` may have behind the one that has been sampled."""
        return tokens_left(request, self.max_model_len) - 1

    def _append(self, request: Request, sampled: list[int], one: Found) -> None:
        """Let the step that sampled ``sampled`` have produced forced tokens as well, and nothing be in flight."""
        if one.grammar.accepted_ahead:
            one.grammar.accept_forced(one.tokens)  # (else vLLM lets it take all that has been produced)
        self._entered.setdefault(request.request_id, request.num_tokens)
        if request.num_output_placeholders:  # asynchronous: of the result that has come, and of those in flight
            request.num_output_placeholders = 1 + len(one.tokens)
        sampled.extend(one.tokens)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """A step has been put together: tell the model runner of what it runs and does not know."""
        if self._entered:
            sent = []
            for name in [name for name in self._entered if name in scheduler_output.num_scheduled_tokens]:
                start, request = self._entered.pop(name), self.requests[name]
                tokens = list(request.all_token_ids[start:])
                sent.append(runners.Entered(name, start, tokens, request.num_computed_tokens))
            if sent:
                setattr(scheduler_output, runners.ENTERED, sent)
        super()._update_after_schedule(scheduler_output)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> object:
        self._entered.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)


HOOK = scheduler_mixins.hook(
    JumpForwardScheduler,
    name="jump-forward",
    summary="forced text is entered into requests, not generated",
    without_it="forced text is generated token by token",
    targets=(
        Target("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._update_states", ("self", "scheduler_output")),
        Target("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.add_requests", ("self", "scheduler_output")),
    ),
)
HOOK.replaces("vllm.v1.worker.worker_base:WorkerWrapperBase.init_device")(runners.init_device)
