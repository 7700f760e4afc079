"""Coalescence: text that the grammar forces is proposed as draft tokens and verified in one pass of the model.

vLLM's speculative decoding verifies drafts under the masks and by rejection sampling, so the output is distributed
exactly as without them; where the mask leaves one token, acceptance is certain. The drafts are the canonical spelling
of the bytes that must follow (see `dotllm.index.forced`). "Jump-forward decoding" is the same idea without
verification.

Modes (``--dotllm-coalescence``, ``DOTLLM_COALESCENCE``):
 * ``off``.
 * ``lossless``: masks are as ever. A model that would spell forced text in another way does, and rejects the draft.
 * ``canonical``: in forced text only the drafted token is allowed, so every draft is accepted. The set of possible
   texts is unchanged, their token spelling is not free: a policy, not a loss of exactness of the text.

Coalescence needs vLLM's machinery of speculation, hence a ``speculative_config``: the user's own (ngram, EAGLE, …),
whose drafts come after the forced ones, or else one with a proposer that proposes nothing (`NullProposer`), which is
put in where the user has named none. Scheduling is then synchronous (vLLM's rule for these methods), which free
requests pay too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from dotllm.errors import SpecError
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.engine_core.forced_tokens import ForcedTokens
from dotllm.vllm_plugin.hook import Hook, Target, replace_once
from dotllm.vllm_plugin.settings import coalescence as mode
from dotllm.vllm_plugin.settings import is_ours

logger = logging.getLogger(__name__)

DRAFTS = 12  # tokens a step, where the user has not chosen a number


def speculative_config(tokens: int = DRAFTS) -> str:
    """vLLM's ``--speculative-config`` for coalescence alone, as JSON."""
    proposer = f"{__name__}.{NullProposer.__name__}"
    return json.dumps({"method": "custom_class", "model": proposer, "num_speculative_tokens": tokens})


class NullProposer:
    """A drafter of vLLM's (method ``custom_class``) that drafts nothing: all drafts are the scheduler's."""

    def __init__(self, vllm_config: Any) -> None:
        pass

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """No drafts, for each request."""
        return [[] for _ in sampled_token_ids]

    def load_model(self, *_: Any, **__: Any) -> None:
        """Nothing to load."""


class Drafting:
    """How many forced tokens a request gets: fewer where its model spells them otherwise."""

    __slots__ = ("given", "limit", "tokens_before")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.given = 0  # drafts in the last step
        self.tokens_before = 0

    def next_limit(self, tokens_now: int, most: int) -> int:
        """The limit for the next step, from how the last drafts fared. Also counts: see `CoalescenceScheduler`."""
        if self.given:
            accepted = min(self.given, max(0, tokens_now - self.tokens_before - 1))
            if accepted == self.given:
                self.limit = min(most, 2 * self.limit)
            else:
                self.limit = max(1, accepted)
        return self.limit


def together(forced: Sequence[int], own: Sequence[int], most: int) -> tuple[list[int], int]:
    """(drafts of a step, how many of them are ours): forced tokens first, then what the user's own method proposed.

    Its proposals are for the same places, so they can follow ours only where they begin as ours do.
    """
    ours = list(forced[:most])
    agrees = len(own) > len(ours) and list(own[: len(ours)]) == ours
    return (list(own[:most]) if agrees else ours), len(ours)


class CoalescenceScheduler:
    """Goes before vLLM's scheduler: drafts are set when a step is scheduled, where all tokens before are known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forced = ForcedTokens.shared()
        self._drafting: dict[str, Drafting] = {}
        self._most_drafts = self._how_many()
        self.coalescence = {"proposed": 0, "accepted": 0, "steps_saved": 0}
        self._reported = dict.fromkeys(self.coalescence, 0)
        self._log_at = 1 << 10

    def _how_many(self) -> int:
        reason = why_not(self)
        logger.info("coalescence: %s", f"no ({reason})" if reason else mode())
        return 0 if reason else int(self.vllm_config.num_speculative_tokens)  # type: ignore[attr-defined]

    def idles(self) -> bool:
        """Whether no forced tokens are drafted in this engine (see `scheduler_class`)."""
        return not self._most_drafts

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step, with forced tokens as drafts."""
        if not self._most_drafts:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        for request in self.running:  # type: ignore[attr-defined]
            if request.use_structured_output and not request.is_prefill_chunk:
                self._draft(request)
        self._report()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        for request_id, drafting in self._drafting.items():
            if drafting.given:  # not all need have been scheduled: see vLLM's budgets
                scheduled = output.scheduled_spec_decode_tokens.get(request_id, ())
                drafting.given = min(drafting.given, len(scheduled))
                self.coalescence["proposed"] += drafting.given
        return output

    def _draft(self, request: Any) -> None:
        from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

        grammar = request.structured_output_request.grammar
        if not isinstance(grammar, RequestGrammar) or grammar.failed:
            return
        if self.structured_output_manager.reasoner_cls is not None and not getattr(  # type: ignore[attr-defined]
            request.structured_output_request, "reasoning_ended", False
        ):
            return  # it is still thinking
        drafting = self._drafting.get(request.request_id)
        if drafting is None:
            drafting = self._drafting[request.request_id] = Drafting(self._most_drafts)
        now = request.num_tokens
        if drafting.given:
            self._count(min(drafting.given, max(0, now - drafting.tokens_before - 1)))
        limit = drafting.next_limit(now, self._most_drafts)
        drafting.given = 0
        try:
            guide = grammar.guide
            forced = () if guide.is_ambiguous else self._forced.after(guide.index, guide.config)
        except SpecError as error:
            grammar.fail("coalescence", error)
            return
        if not forced:
            return
        request.spec_token_ids, drafting.given = together(forced[:limit], request.spec_token_ids, self._most_drafts)
        drafting.tokens_before = now

    def _count(self, accepted: int) -> None:
        self.coalescence["accepted"] += accepted
        self.coalescence["steps_saved"] += accepted

    def _report(self) -> None:
        """To /metrics, once a step at most; and now and then to the log."""
        counts, backend = self.coalescence, backend_of(self.structured_output_manager)  # type: ignore[attr-defined]
        if backend is None or counts == self._reported:
            return
        for name, value in counts.items():
            counter = ("dotllm_steps_saved",) if name == "steps_saved" else ("dotllm_forced_tokens", name)
            backend.compiler.metrics.add(*counter, amount=float(value - self._reported[name]))
        self._reported = dict(counts)
        if counts["proposed"] >= self._log_at:
            self._log_at *= 2
            logger.info("coalescence: %d forced tokens proposed, %d accepted", counts["proposed"], counts["accepted"])

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        drafting = self._drafting.pop(request.request_id, None)
        if drafting is not None and drafting.given:
            self._count(min(drafting.given, max(0, request.num_tokens - drafting.tokens_before - 1)))
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def why_not(scheduler: Any) -> str:
    """Why no forced tokens are drafted in this engine; "" if they are."""
    config = scheduler.vllm_config
    if mode() == "off":
        return "off"
    if config.speculative_config is None:
        return "no speculative_config: forced tokens need vLLM's verification"
    if config.scheduler_config.async_scheduling:
        return "scheduling is asynchronous: drafts would have to be made on the device"
    if getattr(config.model_config, "is_diffusion", False):
        return "the model is a diffusion model"
    return ""


def _speculates(arguments: Any) -> bool:
    """Whether the user has asked for a speculative method (by any of the ways that vLLM has)."""
    ways = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
    return any(getattr(arguments, way, None) is not None for way in ways)


def _create_speculative_config_with(original: Any) -> Any:
    def create_speculative_config(self: Any, target_model_config: Any, *args: Any, **kwargs: Any) -> Any:
        if not _speculates(self) and is_ours(_backend(self)):
            self.speculative_config = json.loads(speculative_config())
        return original(self, target_model_config, *args, **kwargs)

    return create_speculative_config


def _speculate_by_default() -> None:
    """Engines without a speculative method of their own get `speculative_config`, servers and ``LLM(…)`` alike."""
    from vllm.engine.arg_utils import EngineArgs

    replace_once(EngineArgs, "create_speculative_config", _create_speculative_config_with)


def _backend(arguments: Any) -> str:
    config = arguments.structured_outputs_config
    return str(config.get("backend", "auto") if isinstance(config, dict) else config.backend)


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if mode() == "off":
        return
    _speculate_by_default()
    for name in ("schedule", "_free_request"):
        if not hasattr(Scheduler, name):
            raise AttributeError(f"Scheduler has no {name}")
    scheduler_class.add(CoalescenceScheduler)


_SCHEDULER = "vllm.v1.core.sched.scheduler"

HOOK = Hook(
    name="coalescence",
    summary="forced text is drafted and verified in one pass",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.schedule", ("self",)),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        Target("vllm.v1.request", "Request.__init__@spec_token_ids"),
        Target("vllm.engine.arg_utils", "EngineArgs.create_speculative_config", ("self", "target_model_config")),
        Target("vllm.engine.arg_utils", "EngineArgs.speculative_config:"),
        Target("vllm.engine.arg_utils", "EngineArgs.structured_outputs_config:"),
        Target("vllm.v1.spec_decode.custom_class_proposer", "create_custom_proposer"),
    ),
    apply=_apply,
    required=False,
    without_it="forced text is generated token by token",
)
