"""Canonical coalescence: forced text is entered into a request, not generated ("jump-forward decoding").

Where the grammar allows only one text, and the spelling of this text is fixed, the next tokens are known without the
model: sampling under the mask would give each with certainty. So the engine core appends these tokens to the request as
soon as it knows them. The next step runs all of them through the model, like the end of a prompt, and samples the token
that follows. Nothing is drafted or verified, so no speculative configuration is needed; asynchronous scheduling is
kept, and requests without constraints pay nothing. (See https://lmsys.org/blog/2024-02-05-compressed-fsm/. Its doubts
about re-tokenisation do not apply: the spelling is the one that the masks of this mode would have forced.)

To vLLM it looks as if step n had produced several tokens, as with accepted drafts. They are appended to the step's
result before the scheduler reads it, looks for stops, advances the grammar and sends the tokens out.

With asynchronous scheduling, step n + 1 is already running when the result of step n arrives. Step n + 1 runs the token
that step n sampled, and that run counts. It then samples the first forced token, which is already known, so its result
is not needed. We mark this result as vLLM marks results in flight at a preemption, and vLLM drops it. Step n + 2 runs
all forced tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dotllm.errors import TooFewTokensError
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.enforce.compile_hook import GIVEN, backend_of
from dotllm.vllm_plugin.enforce.errors import contained, logits_processors
from dotllm.vllm_plugin.enforce.scheduler import FORCED, Part, takes_part
from dotllm.vllm_plugin.extra import runners
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling
from dotllm.vllm_plugin.extra.mass.wire import asks
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.speed.request_state import beyond, tokens_left
from dotllm.vllm_plugin.vllm_types import (
    CompilationConfig,
    ModelConfig,
    ModelRunnerOutput,
    Request,
    Scheduler,
    SchedulerOutput,
    VllmConfig,
)

if TYPE_CHECKING:
    from dotllm.index import Walkable
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar, SpellingOf

logger = logging.getLogger(__name__)

# Which engines and which requests are coalesced: forced text has one spelling there, and may be entered.
#
# All other requests are served exactly as with ``off``: the model spells their forced text as it likes, token by token.
# So canonical masks never contradict another option of a request.


_HARMLESS = frozenset(
    {
        *("n", "temperature", "top_p", "top_k", "min_p", "max_tokens", "min_tokens", "structured_outputs"),
        # How the request ends, and how the front end writes its text.
        *("stop", "stop_token_ids", "ignore_eos", "_eos_token_id", "_all_stop_token_ids", "include_stop_str_in_output"),
        *("detokenize", "skip_special_tokens", "spaces_between_special_tokens", "output_kind", "stream_interval"),
        *("output_text_buffer_length", "skip_clone", "skip_reading_prefix_cache", "flat_logprobs"),
        # Fields that are not ours are for logits processors; an engine that has any coalesces nothing.
        *("extra_args", "_watermarking_skipped"),
    }
)
"""Parameters of a request with which forced text may be entered, whatever their values."""

_HARMLESS_EMPTY = ("bad_words", "_bad_words_token_ids", "logit_bias", "watermarking")
"""Parameters that ask for nothing if they are empty or false."""


def why_not(config: VllmConfig) -> str:
    """Why an engine coalesces no request; "" if it does. Raises ValueError for a mode that does not exist."""
    model, parallel = config.model_config, config.parallel_config
    checks = (
        (settings.value(settings.COALESCENCE) == "off", "switched off"),
        (config.speculative_config is not None, "speculative decoding: forced text is left to its drafts"),
        (parallel.pipeline_parallel_size > 1, "pipeline stages"),
        (parallel.prefill_context_parallel_size > 1, "prefill context parallelism"),
        (config.kv_transfer_config is not None, "a KV connector"),
        (model.is_diffusion, "the model is a diffusion model"),
        (model.is_hybrid or model.is_attention_free, "the model has a recurrent state"),
        # (The V2 runner has such positions for a prompt's tokens only; later tokens continue from them.)
        (config.use_v2_model_runner and model.uses_mrope, "the model's positions have several dimensions"),
        (bool(logits_processors(model)), "the user's logits processors, which must see every token"),
        (bool(model.return_sampling_mask or config.aux_output_config.enabled), "something is returned for every step"),
    )
    return next((reason for applies, reason in checks if applies), "")


def spelling(config: VllmConfig) -> Callable[[Request], SpellingOf | None]:
    """For an engine: how the forced text of a request is spelt; None where the model spells it as it likes."""
    if why_not(config):
        return lambda request: None
    keeps_generators = not config.use_v2_model_runner
    return lambda request: ForcedSpelling.of if may_be(request, keeps_generators=keeps_generators) else None


def may_be(request: Request, *, keeps_generators: bool) -> bool:
    """Whether ``request`` is coalesced, in an engine that coalesces: only `_HARMLESS` parameters are set.

    It is not coalesced if the sampler must see each token, to count it or report its probability, or if the request
    itself restricts tokens (bad_words, allowed_token_ids, logit_bias): the canonical token may be excluded. A parameter
    that a later vLLM adds is unknown, and so not harmless. Stop tokens are examined one by one
    (`forced_after`). A request that asks for masses gets one for each token, from the step that samples it.

    keeps_generators: for a request with a seed, the runner draws from the request's own generator (V1), so a draw
    depends on the number of earlier draws. (V2 draws by position.)
    """
    parameters = request.sampling_params
    if parameters is None or request.resumable or asks(parameters):
        return False
    return all(
        (name in _HARMLESS_EMPTY and not value) or (name == "seed" and not keeps_generators)
        for name, value in beyond(_HARMLESS, parameters)
    )


# In which steps forced text is entered: a static rule over vLLM's own settings.


class Offer(NamedTuple):
    """Forced text of one request, which may be entered."""

    position: int
    """in the results of the step"""
    grammar: Any
    """its `RequestGrammar`"""
    tokens: Sequence[int]
    steps_saved: int


NARROW = 2048
"""The hidden size below which a layer takes the GPU less time than the host takes to launch it."""
STEPS_WIDE, STEPS_NARROW = 2, 3
"""How many steps must be saved for each running request: the cost of a longer step, and some more, because other
requests join those that wait. A narrow model's step is short and the host sets its pace, so launching a longer step
costs two or three more."""


class Rule:
    """Whether the saved steps outweigh one longer step.

    A step that runs several tokens of a request is like one that runs a prompt: it fits none of vLLM's graphs of whole
    steps ("full"), and launches its attention separately. That takes longer for all requests of the batch, so together
    they must save `STEPS_WIDE` or `STEPS_NARROW` times as many steps as there are requests. (Otherwise the requests go
    on token by token, and are examined again in the next step, together with others that have come to forced text.) The
    longer step costs nothing if a prompt is run anyway, or if both kinds of steps have the same kind of graph.

    Forced text never makes a step longer than vLLM's largest graph, unless the step is longer even without it. A batch
    near that size has too little room to save enough, so it is not examined (`may_pay`).
    """

    def __init__(self, compilation: CompilationConfig, model: ModelConfig) -> None:
        mode = compilation.cudagraph_mode
        self._graph_tokens = compilation.max_cudagraph_capture_size or 0
        costs = self._graph_tokens and mode and mode.decode_mode() != mode.mixed_mode()
        self._steps = (STEPS_NARROW if model.get_hidden_size() < NARROW else STEPS_WIDE) if costs else 0

    def may_pay(self, running: int, *, prompt_comes: bool) -> bool:
        """Whether ``running`` requests may save enough steps; prompt_comes: the next step runs a prompt."""
        return self._room(running) > (0 if prompt_comes else self._steps * running)

    def __call__(self, offers: Sequence[Offer], running: int, *, prompt_comes: bool) -> Sequence[Offer]:
        """Those of ``offers`` that are worth entering; the other parameters are those of `may_pay`."""
        fitting = _fitting(offers, self._room(running))
        saved = sum(offer.steps_saved for offer in fitting)
        return fitting if saved > (0 if prompt_comes else self._steps * running) else ()

    def _room(self, running: int) -> float:
        """Tokens that the step may run in addition to one for each request."""
        return self._graph_tokens - running if running <= self._graph_tokens else math.inf


def _fitting(offers: Sequence[Offer], room: float) -> Sequence[Offer]:
    """As many offers as fit into ``room`` tokens, in addition to the one that each request has anyway; longest
    first."""
    if sum(len(offer.tokens) - 1 for offer in offers) <= room:
        return offers
    fitting = []
    for candidate in sorted(offers, key=lambda candidate: -candidate.steps_saved):
        if len(candidate.tokens) - 1 <= room:
            room -= len(candidate.tokens) - 1
            fitting.append(candidate)
    return fitting


@contained(tuple)
def forced_after(grammar: RequestGrammar, token: int, left: int) -> Sequence[int]:
    """The tokens that must come after ``token``, which has been sampled; none if nothing is forced, or if the text
    could not end after them. ``left``: the number of tokens left after ``token``."""
    spelling, guide = grammar.spelling, grammar.guide
    if spelling is None or grammar.stopped or token in grammar.stops:
        return ()
    config = guide.config if grammar.accepted_ahead else guide.index.advance(guide.config, token)
    tokens: Sequence[int] = () if config < 0 else spelling.after(guide.index, config)
    if not tokens or grammar.stops_within(tokens):
        return ()
    return tokens if grammar.limit is None or _end_in_time(guide.index, config, tokens, left) else ()


def _end_in_time(index: Walkable, config: int, tokens: Sequence[int], left: int) -> bool:
    """Whether a text under a limit can end after ``tokens``, with ``left`` tokens left at ``config``."""
    for token in tokens:
        config = index.advance(config, token)
    try:
        index.mask_within(config, left - len(tokens))
    except TooFewTokensError:
        return False
    return True


@contained(type(None))
def accept_forced(grammar: RequestGrammar, tokens: Sequence[int]) -> None:
    """Advance by forced tokens."""
    if grammar.spelling is None or not grammar.spelling.follow(grammar.guide, tokens):
        raise RuntimeError("a forced token is not allowed")


STEPS_TO_LOOK_AGAIN = 32
"""If entering text does not pay, the next ``requests // STEPS_TO_LOOK_AGAIN`` steps are not examined: examining takes
time for each request, and little text becomes forced from one step to the next."""


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
        """The requests into which text was entered, in the results being read"""
        self._entered: dict[str, int] = {}
        """by request, the first position whose token the model runner does not know yet"""

    def results_came(self, step: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """Append to the tokens of ``step`` the text that is forced after them."""
        self._grown = self._enter(output) if self._enters_text else []

    def results_read(self) -> None:
        """Mark results in flight for requests into which text was entered: they do not count."""
        for request in self._grown:
            if request.num_in_flight_tokens and not request.is_finished():
                request.num_stale_output_tokens = request.num_in_flight_tokens
                request.drop_stale_output = True
        self._grown = []

    def _enter(self, output: ModelRunnerOutput) -> list[Request]:
        """Append forced tokens to the results. Returns the requests that got some."""
        running = len(self.scheduler.running)
        prompt_comes = bool(self.scheduler.waiting) and running < self.scheduler.max_num_running_reqs
        if not self.pays.may_pay(running, prompt_comes=prompt_comes):
            return []
        if self._pause and not prompt_comes:
            self._pause -= 1
            return []
        offers = self._find(output)
        chosen = self.pays(offers, running, prompt_comes=prompt_comes)
        if offers and not chosen:
            self._pause = running // STEPS_TO_LOOK_AGAIN
        requests = []
        for offer in chosen:
            request = self.scheduler.requests[output.req_ids[offer.position]]
            self._append(request, output.sampled_token_ids[offer.position], offer)
            requests.append(request)
        backend = backend_of(self.scheduler.structured_output_manager)
        if chosen and backend is not None:
            metrics = backend.compiler.metrics
            metrics.add("dotllm_forced_tokens", amount=float(sum(len(offer.tokens) for offer in chosen)))
            metrics.add("dotllm_steps_saved", amount=float(sum(offer.steps_saved for offer in chosen)))
        return requests

    def _find(self, output: ModelRunnerOutput) -> list[Offer]:
        """The forced tokens after the tokens of a step, as far as each request may continue."""
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

        manager = self.scheduler.structured_output_manager
        reasons = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        offers = []
        for position, (name, sampled) in enumerate(zip(output.req_ids, output.sampled_token_ids, strict=False)):
            request = self.scheduler.requests.get(name)
            if request is None or request.structured_output_request is None or len(sampled) != 1:
                continue
            structured = request.structured_output_request
            if reasons and not structured.reasoning_ended:
                continue
            grammar = structured._grammar
            if type(grammar) is not RequestGrammar or grammar.spelling_of is None:
                continue
            in_flight = request.num_output_placeholders > 1
            counts = request.status is RequestStatus.RUNNING and not request.num_stale_output_tokens
            tokens = forced_after(grammar, sampled[0], self._room(request)) if counts else ()
            if len(tokens) > in_flight:
                tokens = tokens[: max(0, self._room(request))]
                if len(tokens) > in_flight:
                    offers.append(Offer(position, grammar, tokens, len(tokens) - in_flight))
        return offers

    def _room(self, request: Request) -> int:
        """The number of tokens that ``request`` may have after the sampled one."""
        return tokens_left(request, self.scheduler.max_model_len) - 1

    def _append(self, request: Request, sampled: list[int], offer: Offer) -> None:
        """Make it look as if the step had produced the forced tokens after ``sampled``, and nothing were in flight."""
        if offer.grammar.accepted_ahead:
            accept_forced(offer.grammar, offer.tokens)  # (else vLLM passes it everything that was produced)
        self._entered.setdefault(request.request_id, request.num_tokens)
        if request.num_output_placeholders:  # asynchronous: for the result that has come, and for those in flight
            request.num_output_placeholders = 1 + len(offer.tokens)
        sampled.extend(offer.tokens)

    def scheduled(self, step: SchedulerOutput) -> None:
        """Let ``step`` tell the model runner the tokens that it runs and does not know."""
        if self._entered:
            sent = []
            for name in [name for name in self._entered if name in step.num_scheduled_tokens]:
                start, request = self._entered.pop(name), self.scheduler.requests[name]
                tokens = list(request.all_token_ids[start:])
                sent.append(runners.Entered(name, start, tokens, request.num_computed_tokens))
            if sent:
                setattr(step, runners.ENTERED, sent)

    def ended(self, request: Request) -> None:
        """Nothing more of ``request`` is sent."""
        self._entered.pop(request.request_id, None)


def _enter_text_where_workers_take_it() -> None:
    runners.HOOK.check()
    takes_part(FORCED, JumpForward)()
    GIVEN.spelling = spelling


HOOK = Hook(
    summary="forced text is entered into requests, not generated",
    apply=_enter_text_where_workers_take_it,
    without_it="forced text is generated token by token",
)
