"""The form in which masses travel: from the engine core to the workers, back, and on to the front end.

The mass of a token is the logarithm of the probability that its mask leaves of the model's distribution: the
log-sum-exp of the allowed logits minus that of all logits. A worker computes it where it applies the mask. The masks of
a step say which requests ask, and the step's results carry the masses back, both as attributes of vLLM's objects, which
are pickled on the way. vLLM's messages to a front end have no field for masses. So masses are the last column of a
request's log probabilities, under a token id that does not exist. Front ends take this column off before vLLM reads the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dotllm.vllm_plugin.specification import CONFIDENCE, MASS
from dotllm.vllm_plugin.vllm_types import SamplingParams

NO_TOKEN = -7541
"""The token id of the column of masses."""


def asks(params: SamplingParams | None) -> bool:
    """Whether a request with these parameters asks for masses."""
    fields = params.extra_args if params is not None else None
    return isinstance(fields, dict) and fields.get(MASS) in (True, "true")


def ask(params: SamplingParams, likeliest: int = 0) -> None:
    """Let a request ask for masses, and for the log probabilities of its tokens and of the ``likeliest`` others."""
    others = {name: value for name, value in (params.extra_args or {}).items() if name != CONFIDENCE}
    params.extra_args = others | {MASS: True}
    known = params.logprobs
    if not getattr(params, "logprob_token_ids", None) and known != -1:
        params.logprobs = max(known or 0, likeliest)


def with_masses(logprobs: Any, masses: Sequence[float]) -> Any:
    """vLLM's ``LogprobsLists`` of some tokens of a request, with the masses of its positions as the last column."""
    ids, values = logprobs.logprob_token_ids, logprobs.logprobs
    column = np.full((len(values), 1), np.nan, values.dtype)
    known = masses[: len(values)]
    column[: len(known), 0] = known
    number = np.full((len(ids), 1), NO_TOKEN, ids.dtype)
    return logprobs._replace(logprob_token_ids=np.hstack([ids, number]), logprobs=np.hstack([values, column]))


def taken_off(logprobs: Any) -> tuple[Any, list[float] | None]:
    """The log probabilities alone, and the masses; None if there are none."""
    ids, values = logprobs.logprob_token_ids, logprobs.logprobs
    if not len(ids) or ids[0, -1] != NO_TOKEN:
        return logprobs, None
    return logprobs._replace(logprob_token_ids=ids[:, :-1], logprobs=values[:, :-1]), values[:, -1].tolist()
