"""One vLLM engine in which all structured-output backends take turns, so that they have the same settings, memory and
machine.

vLLM keeps one backend per engine. This module adds a call to the engine core, which sets the current backend aside with
everything that it has compiled, and takes out another one; nothing else of vLLM is changed.
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
    """In the engine core: from now on, the backend of this name guides requests."""
    manager = core.structured_output_manager
    manager.vllm_config.structured_outputs_config.backend = _configured(name)
    backends: dict[str, Any] = manager.__dict__.setdefault("backends", {})
    if manager.backend is not None:
        backends[manager.in_use] = manager.backend
    manager.backend, manager.in_use = backends.get(name), name
    manager.backend_name = name if manager.backend is not None else None  # since 0.33, vLLM refuses others
    manager._grammar_bitmask = None  # its size and kind depend on the backend


def teach_engine_core() -> None:
    """Called when `benchmarks.gpu` is imported, because vLLM's engine process imports it again or is forked from it."""
    from vllm.v1.engine.core import EngineCore

    EngineCore.use_backend = _use_backend


class SharedEngine(EngineTarget):
    """The engine as a target of `dotllm.bench`: nothing is streamed, and times are those of the engine core.

    A streaming client's work for each token would outweigh what is measured.
    """

    logit_bias: Mapping[int, float] | None = None
    """The logit bias of all requests."""
    reasoning_end: str = ""
    """The text that ends the reasoning before an answer; "" if a text is all answer."""
    backend: str = "dotllm"

    async def use(self, name: str) -> None:
        """Use another backend for later requests; none may be in flight."""
        self.backend = name
        # (an object that the input processor shares)
        self.engine.vllm_config.structured_outputs_config.backend = _configured(name)
        await self.engine.engine_core.call_utility_async("use_backend", name)

    async def send(self, request: BenchRequest) -> Sample:
        """See `BenchTarget`. ``chunks`` are the times of the first and the last token."""
        from vllm.sampling_params import RequestOutputKind

        sample = Sample(request, 0.0)
        try:
            parameters = parameters_of(request, RequestOutputKind.FINAL_ONLY)
            parameters.logit_bias = None if self.logit_bias is None else dict(self.logit_bias)
            parameters.skip_clone = True  # as in a server: they are made for this request
            if self.backend == "dotllm" and parameters.structured_outputs is not None:
                # As in a server, whose engine gives the verdict. (Offline, our front end does half of a compile first.)
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
        except Exception as error:  # a refused constraint, or anything else that vLLM raises
            sample.error = f"{type(error).__name__}: {error}"[:300]
        return sample
