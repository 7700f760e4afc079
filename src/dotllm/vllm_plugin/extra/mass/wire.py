"""The form of the messages about masses: from the engine core to the workers, back, and on to the front end.

The mass of a token is the logarithm of the probability that its mask leaves of the model's distribution: the
log-sum-exp of the allowed logits minus that of all logits. A worker computes it where it applies the mask. The masks of
a step say which requests ask, and the step's results carry the masses back, both as attributes of vLLM's objects, which
are pickled on the way. vLLM's messages to a front end have no field for masses. So a step's message begins with an
output of a request that does not exist, which vLLM skips: its ``kv_transfer_params`` are the masses of all requests of
this front end. (They were once a column of each output's log probabilities, which vLLM then had to compute.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dotllm.vllm_plugin.specification import CONFIDENCE, MASS
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput, SamplingParams

CARRIER = "dotllm: masses of this step"
"""The name of the request that does not exist."""


def asks(params: SamplingParams | None) -> bool:
    """Whether a request with these parameters asks for masses."""
    fields = params.extra_args if params is not None else None
    return isinstance(fields, dict) and fields.get(MASS) in (True, "true")


def ask(params: SamplingParams, likeliest: int = 0) -> None:
    """Let a request ask for masses; with ``likeliest``, also for the log probabilities of its tokens and of that many
    others."""
    others = {name: value for name, value in (params.extra_args or {}).items() if name != CONFIDENCE}
    params.extra_args = others | {MASS: True}
    known = params.logprobs
    if likeliest and not getattr(params, "logprob_token_ids", None) and known != -1:
        params.logprobs = max(known or 0, likeliest)


def carrier(masses: Mapping[str, float | list[float]]) -> Any:
    """vLLM's ``EngineCoreOutput`` that carries ``masses``: by request, that of its position in the step, or a list of
    those of its positions."""
    from vllm.v1.engine import EngineCoreOutput

    return EngineCoreOutput(CARRIER, [], kv_transfer_params=masses)


def carried(outputs: Sequence[EngineCoreOutput]) -> Mapping[str, float | list[float]]:
    """The masses that the first of ``outputs`` carries, if it does."""
    return outputs[0].kv_transfer_params or {} if outputs and outputs[0].request_id == CARRIER else {}
