"""One vLLM engine that every structured-output backend takes its turn in, so that all of them have the same settings,
memory and machine.

vLLM keeps one backend an engine. Here the engine core learns one call more, which puts the present backend aside, with
what it has compiled, and takes out another one; nothing else of vLLM is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.bench.client import BenchRequest, Sample
from dotllm.bench.offline import EngineTarget, parameters_of
from dotllm.vllm_plugin.enforce.validation import claim


def _configured(name: str) -> str:
    return "auto" if name == "dotllm" else name


def _use_backend(core: Any, name: str) -> None:
    """In the engine core: from now on requests are guided by the backend of this name."""
    manager = core.structured_output_manager
    manager.vllm_config.structured_outputs_config.backend = _configured(name)
    backends: dict[str, Any] = manager.__dict__.setdefault("backends", {})
    if manager.backend is not None:
        backends[manager.in_use] = manager.backend
    manager.backend, manager.in_use = backends.get(name), name
    manager.backend_name = name if manager.backend is not None else None  # since 0.33 others are refused
    manager._grammar_bitmask = None  # of the size and kind that the backend wants


def teach_engine_core() -> None:
    """Called while `benchmarks.gpu` is imported: vLLM's engine process imports it again, or is forked from it."""
    from vllm.v1.engine.core import EngineCore

    EngineCore.use_backend = _use_backend


class SharedEngine(EngineTarget):
    """The engine as a target of `dotllm.bench`: nothing is streamed, and times are those of the engine core.

    A streaming client's work for each token would weigh more than what is measured.
    """

    logit_bias: Mapping[int, float] | None = None
    """of all requests"""
    reasoning_end: str = ""
    """Where answers begin, in a text that reasons first; "": at its beginning."""
    backend: str = "dotllm"

    async def use(self, name: str) -> None:
        """Take another backend for what is sent from now on; nothing may be in flight."""
        self.backend = name
        # (an object that the input processor shares)
        self.engine.vllm_config.structured_outputs_config.backend = _configured(name)
        await self.engine.engine_core.call_utility_async("use_backend", name)

    async def send(self, request: BenchRequest) -> Sample:
        """See `BenchTarget`. ``chunks`` are the first token's time and the last's."""
        from vllm.sampling_params import RequestOutputKind

        sample = Sample(request, 0.0)
        try:
            parameters = parameters_of(request, RequestOutputKind.FINAL_ONLY)
            parameters.logit_bias = None if self.logit_bias is None else dict(self.logit_bias)
            parameters.skip_clone = True  # as a server's: they are made for this request
            if self.backend == "dotllm" and parameters.structured_outputs is not None:
                # As a server does: its engine gives the verdict. (Offline our front end compiles half before it sends.)
                claim(parameters.structured_outputs)
            async for output in self.engine.generate(request.prompt, parameters, f"bench-{next(self.numbers)}"):
                answer, times = output.outputs[0], output.metrics
            sample.start, sample.end = times.queued_ts, times.last_token_ts
            sample.chunks = [times.first_token_ts, times.last_token_ts]
            sample.tokens, sample.text = len(answer.token_ids), answer.text
            sample.finish_reason = answer.finish_reason
            if self.reasoning_end and request.constraint is not None:
                _, end, sample.text = sample.text.partition(self.reasoning_end)
                if not end:  # nothing to judge
                    sample.finish_reason = "length"
            if answer.finish_reason == "error":
                sample.error = "ended with an error"
        except Exception as error:  # a refused constraint, or whatever vLLM raises: the sample says so
            sample.error = f"{type(error).__name__}: {error}"[:300]
        return sample
