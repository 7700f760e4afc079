"""The front end's side: takes masses off the log probabilities that carry them, and notes them for the response."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dotllm.vllm_plugin.api.call import current
from dotllm.vllm_plugin.extra.mass.record import Position
from dotllm.vllm_plugin.extra.mass.wire import taken_off
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import SamplingParams

HOOK = Hook(
    name="mass-answers",
    summary="chats and completions say how much probability each mask left, where they are asked",
    targets=(Target("vllm.v1.engine.logprobs", "LogprobsProcessor.logprobs"),),
    without_it="answers do not say how much probability the masks left",
)


@HOOK.replaces("vllm.v1.engine.logprobs:LogprobsProcessor._update_sample_logprobs")
def _update_sample_logprobs(self: Any, logprobs_lists: Any, *, original: Original) -> None:
    logprobs, masses = taken_off(logprobs_lists)
    original(self, logprobs)
    if masses is not None and isinstance(self.logprobs, list):
        for at, mass in enumerate(masses, len(self.logprobs) - len(masses)):
            position = self.logprobs[at] = Position(self.logprobs[at])
            position.log_mass = mass


@HOOK.replaces("vllm.v1.engine.async_llm:AsyncLLM.generate")
def _generate(
    self: object,
    prompt: object,
    sampling_params: SamplingParams,
    request_id: str,
    *args: Any,
    original: Original,
    **kwargs: Any,
) -> AsyncGenerator[Any, None]:
    outputs = original(self, prompt, sampling_params, request_id, *args, **kwargs)
    call = current.get()
    return outputs if call is None or call.record is None else call.record.noting(outputs)
