"""While drafts do not pay, vLLM's n-gram proposer is asked for them in one step of `EVERY` only.

It is Python and numba in the worker's half of each step: 1 ms for 256 requests on a CPU of 2024 (it looks each request
up in a list of all), 0.1 ms for 32. And then the scheduler looks at what it found for each request. Where batches have
been judged not to gain from drafts for a while (`draft_pace`), that is time spent on what is dropped.

How many tokens a proposer is asked for is a field of vLLM's ``SchedulerOutput``, meant for numbers that depend on the
batch. We put 0 there. vLLM's proposer takes that for an answer without tokens, but looks at all requests nevertheless;
so it is wrapped.

Only for n-grams, which are found anew in each step. A proposer with a model of its own has to see every token.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target, replace_once, require_parameters

EVERY = 8  # steps
IN_VAIN = 64  # batches whose drafts were looked at and did not pay, before they are asked for seldom
FEWEST = 8  # requests; for fewer, asking costs next to nothing, and one that begins to repeat itself is soon worth it


class Asking:
    """Whether the proposer is asked."""

    def __init__(self) -> None:
        self.asked = True
        """Whether what it proposes after the step that runs counts."""
        self.steps = 1
        """Since it was asked before, this one included."""
        self._in_vain = 0

    def judged(self, *, pays: bool) -> None:
        """What it proposed has been looked at; ``pays``: or must be asked for anyway."""
        self._in_vain = 0 if pays else self._in_vain + 1

    def step(self, requests: int, drafts: int) -> bool:
        """Whether to ask it after a step of so many requests, which verifies so many tokens. (A step that does is to
        take what steps take where drafts are used, since it is timed.)"""
        self.steps = 1 if self.asked else self.steps + 1
        self.asked = self._in_vain < IN_VAIN or requests < FEWEST or drafts > 0 or self.steps >= EVERY
        return self.asked


def can(scheduler: Any) -> bool:
    """Whether the proposer of this engine may be left alone for some steps."""
    return getattr(scheduler.vllm_config.speculative_config, "method", None) == "ngram"


_PROPOSER = "vllm.v1.spec_decode.ngram_proposer"
_PROPOSE = ("self", "num_speculative_tokens", "sampled_token_ids")


def _propose_with(original: Any) -> Any:
    require_parameters(original, _PROPOSE)

    def propose(self: Any, num_speculative_tokens: int, sampled_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if num_speculative_tokens == 0:
            return [[] for _ in sampled_token_ids]
        return original(self, num_speculative_tokens, sampled_token_ids, *args, **kwargs)

    return propose


def _apply() -> None:
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    replace_once(NgramProposer, "propose", _propose_with)


HOOK = Hook(
    name="seldom-drafts",
    summary="vLLM's n-gram proposer is not run where it is asked for no tokens",
    targets=(Target(_PROPOSER, "NgramProposer.propose", _PROPOSE),),
    apply=_apply,
    required=False,
    without_it="it looks at all requests for nothing",
)
