"""The front end's side: adds the masses of a step's tokens to the positions of their log probabilities, and keeps them
for the response. A request that asks for no log probabilities has positions that hold only masses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cache
from typing import Any

from dotllm.vllm_plugin.api.call import current
from dotllm.vllm_plugin.extra.mass.record import Position
from dotllm.vllm_plugin.extra.mass.wire import asks, carried
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput, SamplingParams

HOOK = Hook(
    summary="answers of chats and completions contain the probability that each mask left, if the request asks",
    targets=(
        Target("vllm.v1.engine.logprobs", "LogprobsProcessor.logprobs"),
        Target("vllm.v1.engine.logprobs", "LogprobsProcessor.update_from_output", ("self", "output")),
        Target("vllm.v1.engine.output_processor", "RequestState.logprobs_processor"),
        Target("vllm.v1.engine.output_processor", "OutputProcessor.request_states"),
    ),
    without_it="answers do not say how much probability the masks left",
)


@cache
def _with_masses() -> Any:
    """vLLM's ``LogprobsProcessor``, which holds what is known of the tokens of one answer, for requests that ask."""
    from vllm.v1.engine.logprobs import LogprobsProcessor

    class WithMasses(LogprobsProcessor):
        logprobs: Any
        came: float | Sequence[float] = ()
        """The mass of the next output's position, or those of its positions; there may be more than tokens."""
        masses: Sequence[float | None] = ()
        """The masses of the last output's tokens."""

        def update_from_output(self, output: EngineCoreOutput) -> None:
            super().update_from_output(output)
            count, came, self.came = len(output.new_token_ids), self.came, ()
            self.masses = [*([came] if isinstance(came, float) else came), *[None] * count][:count]
            if self.num_logprobs is None:
                positions: list[Any] = self.logprobs or []
                positions += map(Position.with_mass, self.masses)
                self.logprobs = positions
            elif count and isinstance(self.logprobs, list):
                self.logprobs[-count:] = map(Position.with_mass, self.masses, self.logprobs[-count:])

    return WithMasses


def masses_of(logprobs_processor: Any) -> Sequence[float | None]:
    """The masses of the last tokens of a request; empty if it does not ask for them."""
    return logprobs_processor.masses if isinstance(logprobs_processor, _with_masses()) else ()


@HOOK.replaces("vllm.v1.engine.logprobs:LogprobsProcessor.from_new_request")
def _from_new_request(cls: Any, tokenizer: object, request: Any, *, original: Original) -> Any:
    return original(_with_masses() if asks(request.sampling_params) else cls, tokenizer, request)


@HOOK.replaces("vllm.v1.engine.output_processor:OutputProcessor.process_outputs")
def _process_outputs(
    self: Any, engine_core_outputs: Sequence[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    for name, masses in carried(engine_core_outputs).items():
        if (request := self.request_states.get(name)) is not None:  # (else it has been aborted)
            request.logprobs_processor.came = masses
    return original(self, engine_core_outputs, *args, **kwargs)


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
