"""Canonical coalescence without speculation: forced text is entered into a request, not generated.

Where the grammar allows one text only, and its spelling is fixed too (mode ``canonical``), the tokens that come next
are known without asking the model: sampling under the mask would give each with certainty. So the engine core appends
them to the request as soon as it knows them, and the next step runs them through the model in one piece, as it does
with the end of a prompt, and samples the token after them. Nothing is drafted and nothing verified, so no speculative
configuration is needed; scheduling stays asynchronous, and requests without constraints pay nothing.
("Jump-forward decoding", https://lmsys.org/blog/2024-02-05-compressed-fsm/, whose doubts about re-tokenisation do not
arise: the spelling is the one that the masks of this mode would have forced.)

In step n a token is sampled after which text is forced; when the engine core learns of it, step n + 1 is already on
the device, sampling the first forced token. That result is known and does not count; what n + 1 wrote into the KV cache
does. Step n + 2 then runs all forced tokens. In vLLM's books step n has produced several tokens, as if drafts had been
accepted, and nothing is in flight; in the model runner's books the request's "prefill" (what it takes from its list of
tokens rather than from the sampler) has become longer, as it does for a request that is resumed.

Requests whose every token must come out of the sampler (`must_sample`) generate forced text as before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from dotllm.vllm_plugin.gpu_masks import worker_hooks
from dotllm.vllm_plugin.hook import Target, replace_once, require_parameters
from dotllm.vllm_plugin.jump_forward.pace import Pace
from dotllm.vllm_plugin.settings import coalescence, gpu_masks

MIN_JUMP_TOKENS = 2  # tokens: one is generated in the step that is in flight anyway

_RUNNER = "vllm.v1.worker.gpu.model_runner"
_STATES = "vllm.v1.worker.gpu.states"
_ATTRIBUTE = "dotllm_jumps"  # of a scheduler output: list[Jump]

TARGETS = (
    Target(_RUNNER, "GPUModelRunner.add_requests", ("self", "scheduler_output")),
    Target(_STATES, "RequestState.apply_staged_writes", ("self",)),
    *(
        Target(_STATES, f"RequestState.__init__@{name}")
        for name in (
            "req_id_to_index", "all_token_ids", "prefill_len", "total_len", "num_computed_tokens",
            "last_sampled_tokens",
        )
    ),
    Target("vllm.v1.worker.gpu.sample.sampler", "Sampler.__init__@penalties_state"),
    Target("vllm.v1.worker.gpu.sample.penalties", "PenaltiesState.__init__@output_bin_counts"),
)  # fmt: skip


class Jump(NamedTuple):
    """What the model runner needs to know of one: ``tokens`` stand at position ``start`` of the request, and its KV
    cache is valid for ``computed`` tokens."""

    request_id: str
    start: int
    tokens: list[int]
    computed: int
    uncount: bool = False
    """whether the token that the request sampled last is to leave the counts that penalties go by"""


class JumpForward:
    """The engine core's side; one per scheduler."""

    def __init__(self, graph_tokens: int = 0) -> None:
        """graph_tokens: of the largest step that vLLM has a graph for."""
        self._entered: dict[str, int] = {}  # the position of the first token that the model runner has not got
        self._certain: set[str] = set()  # requests whose result in flight is known already, or does not count
        self._taken_back: set[str] = set()  # those of `take_back` that the model runner does not know of
        self.counts = {"tokens": 0, "steps_saved": 0}
        self._reported = dict(self.counts)
        self._graph_tokens = graph_tokens
        self._pace = Pace(graph_tokens)

    def room(self, request: Any, tokens: Sequence[int]) -> list[int]:
        """Those of the forced ``tokens`` that can be entered into ``request``; mostly none."""
        if len(tokens) < MIN_JUMP_TOKENS or must_sample(request):
            return []
        room = request.max_tokens - request.num_output_tokens - 1  # (the token that led here is not counted yet)
        return list(tokens[: max(0, room)])

    def enter(self, request: Any, sampled: list[int], tokens: list[int]) -> None:
        """Let the step that sampled ``sampled`` have produced ``tokens`` too."""
        in_flight = request.num_output_placeholders - 1
        self._entered.setdefault(request.request_id, request.num_tokens + 1)
        if in_flight > 0:
            self._certain.add(request.request_id)
        sampled.extend(tokens)
        request.num_output_placeholders += len(tokens) - in_flight
        self.counts["tokens"] += len(tokens)
        self.counts["steps_saved"] += len(tokens) - in_flight

    def take_back(self, request: Any) -> None:
        """The step in flight has sampled a token for ``request`` that does not count. The next one runs the token
        before it again, as the last of what was entered."""
        self._entered.setdefault(request.request_id, request.num_tokens - 1)
        self._certain.add(request.request_id)
        self._taken_back.add(request.request_id)
        request.num_output_placeholders -= 1
        request.num_computed_tokens -= 1

    def time(self, launched: Any) -> None:
        """The results of a step have come while ``launched``, a scheduler output, runs: learn how long steps take."""
        self._pace.results(launched.total_num_scheduled_tokens, len(launched.num_scheduled_tokens), time.perf_counter())

    def pays(self, forced: Sequence[Sequence[int]], scheduler: Any) -> bool:
        """Whether entering ``forced``, the tokens of some requests, is worth the longer step that runs them."""
        running, entered = len(scheduler.running), sum(map(len, forced))
        waits = scheduler.waiting and running < scheduler.max_num_running_reqs
        if waits and running + entered < self._graph_tokens:
            return True  # the next step will run a prompt, so it will be no plain one anyway
        return self._pace.pays(entered - len(forced), running, running + entered)

    def was_certain(self, request_id: str) -> bool:
        """Whether the result that has come for this request is one that was known before (it does not count)."""
        if request_id in self._certain:
            self._certain.discard(request_id)
            return True
        return False

    def report(self, metrics: Any) -> None:
        """To /metrics: what is entered is proposed and accepted at once."""
        if self.counts == self._reported:
            return
        new = {name: float(count - self._reported[name]) for name, count in self.counts.items()}
        self._reported = dict(self.counts)
        metrics.add("dotllm_forced_tokens", "proposed", amount=new["tokens"])
        metrics.add("dotllm_forced_tokens", "accepted", amount=new["tokens"])
        metrics.add("dotllm_steps_saved", amount=new["steps_saved"])

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._entered.pop(request_id, None)
        self._certain.discard(request_id)
        self._taken_back.discard(request_id)

    def send(self, scheduler_output: Any, requests: Any) -> None:
        """Tell the model runner of what has been entered, with the first step that runs it."""
        if not self._entered:
            return
        scheduled = scheduler_output.num_scheduled_tokens
        jumps = []
        for request_id, start in list(self._entered.items()):
            request = requests[request_id]
            count = scheduled.get(request_id)
            if count is None and request.num_computed_tokens:
                continue  # it waits for its turn
            del self._entered[request_id]
            uncount = request_id in self._taken_back
            self._taken_back.discard(request_id)
            if count is not None:  # else it has been preempted: all of its tokens will be sent when it is resumed
                tokens = request.all_token_ids[start:]
                computed = request.num_computed_tokens - count
                jumps.append(Jump(request_id, start, list(tokens), computed, uncount and has_penalties(request)))
        if jumps:
            setattr(scheduler_output, _ATTRIBUTE, jumps)


def is_expected(arguments: Any, model_config: Any) -> bool:
    """Whether an engine of these ``EngineArgs`` will enter forced text, as far as that can be told before vLLM has
    decided about its model runner. Where it will not, coalescence needs a speculative configuration.
    """
    from vllm import envs
    from vllm.config import VllmConfig
    from vllm.platforms import current_platform

    kinds = ["is_hybrid", "is_attention_free"]
    if hasattr(VllmConfig, "_is_default_v2_model_runner_model"):  # until 0.28: by default not the V2 runner
        kinds.append("is_moe")
    structured = arguments.structured_outputs_config
    parser = structured.get("reasoning_parser") if isinstance(structured, dict) else structured.reasoning_parser
    parser = parser or getattr(arguments, "reasoning_parser", "")
    return (
        coalescence() == "canonical"
        and not (parser and has_logits_processors(arguments))
        and gpu_masks() != "off"
        and current_platform.is_cuda_alike()
        and envs.VLLM_USE_V2_MODEL_RUNNER is not False
        and not worker_hooks.shards_batch(arguments)
        and arguments.async_scheduling is not False
        and arguments.pipeline_parallel_size == 1
        and getattr(arguments, "kv_transfer_config", None) is None
        and model_config.runner_type == "generate"
        and not any(getattr(model_config, kind, False) for kind in kinds)
    )


def has_logits_processors(config: Any) -> bool:
    """Whether the engine has logits processors of the user's, which may remember tokens that do not count.

    config: vLLM's ``EngineArgs`` or ``ModelConfig``.
    """
    named = getattr(config, "logits_processors", None)
    return bool(named or entry_points(group="vllm.logits_processors"))


def has_penalties(request: Any) -> bool:
    """Whether the sampler counts the request's tokens."""
    parameters = request.sampling_params
    changed = parameters.presence_penalty, parameters.frequency_penalty, parameters.repetition_penalty - 1
    return any(changed)


def must_sample(request: Any) -> bool:
    """Whether the sampler must see each of the request's tokens: it counts them, has a say in which they are beside the
    grammar's, or tells how likely they were."""
    parameters = request.sampling_params
    return (
        parameters is None
        or request.resumable
        or parameters.logprobs is not None
        or has_penalties(request)
        or bool(parameters.bad_words)
        or parameters.allowed_token_ids is not None
    )


def _add_requests_with(original: Any) -> Any:
    require_parameters(original, ("self", "scheduler_output"), no_more=True)

    def add_requests(self: Any, scheduler_output: Any) -> Any:
        jumps = getattr(scheduler_output, _ATTRIBUTE, None)
        if jumps is None:
            return original(self, scheduler_output)
        uncount(self, jumps)
        stage(self.req_states, jumps)
        result = original(self, scheduler_output)
        if not scheduler_output.scheduled_new_reqs:  # else vLLM has done so: twice in a step would be once too often,
            self.req_states.apply_staged_writes()  # since there are two buffers and a step may be in flight
        return result

    return add_requests


def wrap_add_requests() -> None:
    """Wrap ``GPUModelRunner.add_requests``: before it, entered tokens are put into the request states. Idempotent."""
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    replace_once(GPUModelRunner, "add_requests", _add_requests_with)


def uncount(runner: Any, jumps: list[Jump]) -> None:
    """Take the tokens that do not count out of the sampler's statistics, behind the step that has sampled them."""
    states = runner.req_states
    for jump in jumps:
        state = states.req_id_to_index.get(jump.request_id) if jump.uncount else None
        if state is not None:
            counts = runner.sampler.penalties_state.output_bin_counts
            counts[state].index_add_(0, states.last_sampled_tokens[state].view(1).long(), counts.new_full((1,), -1))


def stage(states: Any, jumps: list[Jump]) -> None:
    """Write ``jumps`` into vLLM's ``RequestState``; its ``apply_staged_writes`` brings them to the device."""
    for jump in jumps:
        state = states.req_id_to_index.get(jump.request_id)
        if state is None:
            continue
        length = jump.start + len(jump.tokens)
        states.all_token_ids.stage_write(state, jump.start, jump.tokens)
        states.prefill_len.np[state] = length
        states.total_len.stage_write_elem(state, length)
        states.num_computed_tokens.stage_write_elem(state, jump.computed)
