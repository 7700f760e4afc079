"""A vLLM engine in this process, without HTTP, as a target of ``dotllm bench-structured --offline``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from dotllm.bench.client import BenchRequest, Sample


def parameters_of(request: BenchRequest, output_kind: Any) -> Any:
    """vLLM's ``SamplingParams`` for ``request``; ``output_kind`` is vLLM's ``RequestOutputKind``."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    structured = None
    if request.constraint is not None:
        field = "json" if request.constraint.kind == "json_schema" else request.constraint.kind
        structured = StructuredOutputsParams(**{field: request.constraint.value})
    return SamplingParams(
        temperature=request.temperature,
        max_tokens=request.tokens or request.max_tokens,
        ignore_eos=request.tokens is not None,
        structured_outputs=structured,
        output_kind=output_kind,
    )


class EngineTarget:
    """See `dotllm.bench.client.BenchTarget`. ``flags`` are those of ``vllm serve``."""

    def __init__(self, model: str, flags: Sequence[str] = ()) -> None:
        from dotllm.vllm_plugin import register

        register()  # in this process, too: vLLM checks some flags before it loads plugins
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.async_llm import AsyncLLM

        parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
        arguments = AsyncEngineArgs.from_cli_args(parser.parse_args(["--model", model, *flags]))
        self.engine = AsyncLLM.from_engine_args(arguments)
        self.numbers = itertools.count()

    async def send(self, request: BenchRequest) -> Sample:
        """See `BenchTarget`; the prompt is sent as it is, without a chat template."""
        from vllm.sampling_params import RequestOutputKind

        sample = Sample(request, time.perf_counter())
        parts: list[str] = []
        try:
            parameters = parameters_of(request, RequestOutputKind.DELTA)
            async for output in self.engine.generate(request.prompt, parameters, f"bench-{next(self.numbers)}"):
                piece = output.outputs[0]
                sample.chunks.append(time.perf_counter())
                sample.tokens += len(piece.token_ids)
                parts.append(piece.text)
                sample.finish_reason = piece.finish_reason or sample.finish_reason
        except Exception as error:  # a refused constraint, or any other error of vLLM: the sample says so
            sample.error = f"{type(error).__name__}: {error}"[:300]
        sample.text = "".join(parts)
        sample.end = time.perf_counter()
        return sample

    async def close(self) -> None:
        """End the engine's processes."""
        self.engine.shutdown()
