"""H5: the prompt of a structured request is processed while its index compiles.

vLLM keeps such a request waiting until its grammar is there, and only then begins with the prompt. Here it is scheduled
at once, and *held* one token before the end of its prompt until the grammar has come: the last prompt token is not run,
so nothing is sampled. Where the scheduler fits no longer (see `why_not`), vLLM's own waiting is what happens.

That last token costs a step of its own, which is more than most compiles take (some milliseconds against two). So while
nothing else runs, and the prompt would fit into one step, the step waits `COMPILE_WAIT_S` for the compile first. (Where
masks can be asked for late, all this is for the few requests that `late_mask` does not take.)

What must not go wrong, each with a test in tests/serve/test_overlap.py or in test_scheduler.py:
 * Readiness is read once per request and step. Read twice, a compile that fails in between would be scheduled with an
   exception for a grammar, and the engine would die.
 * A failure is registered by vLLM's own code for waiting requests (it differs between releases), and until vLLM has
   ended the request it counts as pending.
 * A request admitted with exactly one token left to run would get zero tokens, and vLLM's waiting loop ends there, so
   everybody behind it would wait. Prefix cache hits are multiples of the hash block size, so this can only happen where
   it divides the prompt's length less one: those keep waiting as vLLM has it.
 * Held requests keep their KV blocks and a slot of the batch, so there is a limit to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.hold_times import HoldTimes
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND

logger = logging.getLogger(__name__)

_SCHEDULER = "vllm.v1.core.sched.scheduler"
# The method that decides whether a waiting request may be scheduled: its name until 0.30, and since.
_PROMOTES = ("_try_promote_blocked_waiting_request", "_handle_blocked_waiting_request")


# Twice what a typical specification takes to compile; a step of a model that is worth a server takes longer.
COMPILE_WAIT_S = 0.005


class OverlapScheduler:
    """Goes before vLLM's scheduler class (sync, async, or a user's own) in the method resolution order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: dict[str, Any] = {}
        self._prompt_holds = HoldTimes("prompt")
        self._one_token_left: set[str] = set()
        self._new: list[Future[Any]] = []
        options = CompilationOptions.from_environment()
        reason = "switched off" if not options.overlap else why_not(self)
        self._vllm_looks_ahead = super()._reserve_prefill_lookahead  # type: ignore[misc]  # the class after us has it
        self._hold_limit = 0 if reason else max(1, min(options.overlap_requests, sequences(self) // 2))
        logger.info("prefill overlaps compilation: %s", f"no ({reason})" if reason else "yes")

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request comes in; its compile has begun."""
        if self._hold_limit and self._is_worth_a_moment(request):
            self._new.append(request.structured_output_request._grammar)
        return super().add_request(request, *args, **kwargs)  # type: ignore[misc]

    def _is_worth_a_moment(self, request: Any) -> bool:
        scheduler: Any = self
        return (
            awaits_grammar(request)
            and not self._runs_unmasked(request)
            and request.num_tokens <= scheduler.max_num_scheduled_tokens
            and scheduler.structured_output_manager.reasoner_cls is None  # it would not wait for its grammar anyway
        )

    def _runs_unmasked(self, request: Any) -> bool:
        """Whether its grammar is waited for at a better moment (`late_mask` knows)."""
        return False

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step. Held requests whose grammar has come go on; this is the only place where that is looked up."""
        if self._new:
            if not self.running:  # type: ignore[attr-defined]
                wait(self._new, COMPILE_WAIT_S)
            self._new.clear()
        for request in list(self._held.values()):
            grammar = request.structured_output_request.grammar
            if grammar is None:
                continue
            if isinstance(grammar, Exception):
                # It stays held (nothing is scheduled for it) until vLLM frees it at the end of this step.
                register_failure(request, self._vllm_promotes)
            else:
                del self._held[request.request_id]
                self._prompt_holds.goes_on(request.request_id, self)
        if not self._held and type(self)._reserve_prefill_lookahead is OverlapScheduler._reserve_prefill_lookahead:
            # vLLM asks for every request in every step: while nobody is held, without a detour.
            vars(self)["_reserve_prefill_lookahead"] = self._vllm_looks_ahead
        return super().schedule(*args, **kwargs)  # type: ignore[misc]  # the class after us has it

    def _vllm_promotes(self, request: Any) -> bool:
        return promotes(super(), request)

    def _promotes(self, request: Any) -> bool:
        if self._vllm_promotes(request):
            return True
        if not self._may_be_held(request):
            return False
        from vllm.v1.request import RequestStatus

        self._held[request.request_id] = request
        vars(self).pop("_reserve_prefill_lookahead", None)  # ours is asked from now on, see `schedule`
        request.status = RequestStatus.WAITING
        return True

    _try_promote_blocked_waiting_request = _promotes
    _handle_blocked_waiting_request = _promotes

    def _may_be_held(self, request: Any) -> bool:
        from vllm.v1.request import RequestStatus

        if request.status != RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            return False
        scheduler: Any = self
        return (
            len(self._held) < self._hold_limit
            # A failed compile has been registered by vLLM just now. Only the raw future tells it from a pending one
            # without a second look: if it ended since, this request is held for one step more, which is harmless.
            and awaits_grammar(request)
            and not request.resumable
            and not request.has_encoder_inputs
            and (request.num_tokens - 1) % scheduler.hash_block_size != 0
            and request.request_id not in self._one_token_left
        )

    def _reserve_prefill_lookahead(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:
        """How many tokens of ``request`` to run in this step: all but the last one while it is held."""
        allowed: int = super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)  # type: ignore[misc]
        if request.request_id not in self._held:
            return allowed
        allowed = min(allowed, max(0, request.num_tokens - 1 - num_computed_tokens))
        if allowed == 0:
            self._prompt_holds.stands_still(request.request_id)
            self._take_back(request)
        return allowed

    def _take_back(self, request: Any) -> None:
        """Zero tokens for a request that is not running yet end vLLM's waiting loop.

        `_may_be_held` sees to it that this does not happen; should it, let the request wait as vLLM has it, from the
        next step on.
        """
        from vllm.v1.request import RequestStatus

        if request.status == RequestStatus.WAITING:
            del self._held[request.request_id]
            self._one_token_left.add(request.request_id)
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request has ended, however: nobody waits for its compile any more."""
        self._held.pop(request.request_id, None)
        self._prompt_holds.forget(request.request_id)
        self._one_token_left.discard(request.request_id)
        withdraw(request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def awaits_grammar(request: Any) -> bool:
    """Whether nobody has looked at the grammar of ``request``, one of ours, since its compile began."""
    structured = request.structured_output_request
    return structured is not None and structured.params._backend == BACKEND and isinstance(structured._grammar, Future)


def withdraw(request: Any) -> None:
    """``request`` does not wait for its compile any more, if it did."""
    pending = getattr(request.structured_output_request, "_grammar", None)
    if isinstance(pending, Future):
        pending.cancel()


def promotes(vllm_scheduler: Any, request: Any) -> bool:
    """vLLM's own decision whether a waiting request may be scheduled; ``vllm_scheduler`` is a mixin's ``super()``."""
    for name in _PROMOTES:
        original = getattr(vllm_scheduler, name, None)
        if original is not None:
            return bool(original(request))
    raise AttributeError("vLLM's scheduler decides about waiting requests in a method we do not know")


def require_promotion(scheduler_class: Any) -> None:
    """Raise AttributeError if it is a method we do not know."""
    if not any(hasattr(scheduler_class, name) for name in _PROMOTES):
        raise AttributeError(f"Scheduler has none of {', '.join(_PROMOTES)}")


def register_failure(request: Any, promotes: Callable[[Any], bool]) -> None:
    """Let vLLM do with a request that is past its waiting what it does with a waiting one whose compile failed."""
    from vllm.v1.request import RequestStatus

    status = request.status
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    try:
        promotes(request)
    finally:
        request.status = status


def why_not(scheduler: Any) -> str:
    """Why prefill cannot overlap with compilation in this engine; "" if it can.

    These features use the same hook, or give a partial prompt a meaning of their own, and have not been tried with it.
    """
    config = scheduler.vllm_config
    checks = (
        (not hasattr(scheduler, "hash_block_size"), "this vLLM has no hash block size"),
        (not config.scheduler_config.enable_chunked_prefill, "chunked prefill is off"),
        (scheduler.connector is not None, "a KV connector is in use"),
        (getattr(scheduler, "ec_connector", None) is not None, "an encoder cache connector is in use"),
        (getattr(scheduler, "is_encoder_decoder", False), "the model is an encoder-decoder"),
        (getattr(scheduler, "need_mamba_block_aligned_split", False), "the model's state is cached at block borders"),
        (getattr(scheduler, "num_prefill_lookahead", 0) > 0, "the drafter looks ahead of the prefill"),
        (getattr(config.model_config, "is_diffusion", False), "the model is a diffusion model"),
        (config.parallel_config.distributed_executor_backend == "external_launcher", "each rank has its own scheduler"),
    )
    return next((reason for applies, reason in checks if applies), "")


def has_recurrent_state(scheduler: Any) -> bool:
    """Whether a token that is run twice changes what the model makes of the ones behind it.

    Attention writes the same into the same place of the KV cache. A recurrent state (Mamba, gated DeltaNet, short
    convolutions, …) takes the token in once more; so where this holds, nobody may count on running one again. vLLM
    keeps all such states as caches of one kind, in models that it calls hybrid and in some that it does not.
    """
    from vllm.v1.kv_cache_interface import MambaSpec

    model = scheduler.vllm_config.model_config
    if any(getattr(model, kind, False) for kind in ("is_hybrid", "is_attention_free")):
        return True
    groups = (group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups)
    specs = (spec for group in groups for spec in getattr(group, "kv_cache_specs", {"": group}).values())
    return any(isinstance(spec, MambaSpec) for spec in specs)


def sequences(scheduler: Any) -> int:
    """How many requests may run at a time."""
    return int(scheduler.vllm_config.scheduler_config.max_num_seqs)


def graph_tokens(scheduler: Any) -> int:
    """Tokens of the largest step that vLLM has a graph for, 0 if it has none."""
    config = getattr(getattr(scheduler, "vllm_config", None), "compilation_config", None)
    return int(getattr(config, "max_cudagraph_capture_size", None) or 0)


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if not hasattr(Scheduler, "_reserve_prefill_lookahead"):
        raise AttributeError("Scheduler has no _reserve_prefill_lookahead (vLLM before 0.28)")
    require_promotion(Scheduler)
    scheduler_class.add(OverlapScheduler)


HOOK = Hook(
    name="overlap",
    summary="the prompt of a request is processed while its specification compiles",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.schedule", ("self",)),
        Target(_SCHEDULER, "Scheduler.add_request", ("self", "request")),
        Target(
            _SCHEDULER,
            "Scheduler._reserve_prefill_lookahead",
            ("self", "request", "num_computed_tokens", "num_new_tokens"),
        ),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        Target(_SCHEDULER, "Scheduler.__init__@hash_block_size"),
        Target(_SCHEDULER, "Scheduler.__init__@connector"),
        Target(_SCHEDULER, "Scheduler.__init__@running"),
        Target(_SCHEDULER, "Scheduler.__init__@max_num_scheduled_tokens"),
        Target(_SCHEDULER, "Scheduler.__init__@vllm_config"),
    ),
    apply=_apply,
    required=False,
    without_it="a structured request begins with its prompt when its specification is compiled, as in vLLM",
)
