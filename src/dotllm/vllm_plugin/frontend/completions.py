"""/v1/completions under a constraint is constrained from its first token, whatever the server's reasoning parser.

With a reasoning parser vLLM constrains nothing before the end of the reasoning. A chat has reasoning, and an answer
behind it; a completion is one text, nobody parses reasoning out of it, and a model that does not reason there never
comes to the constraint: vLLM answers 200 with free text. The constraint is for the text that is returned, all of it.

The request is marked where it becomes sampling parameters, and the mark is turned into ``reasoning_ended`` where these
become the engine's request. The mark is one of ``extra_args``, since a rendered request (``/v1/completions/render``)
makes its way from the one to the other as JSON, maybe to another server.
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend.specification import FROM_FIRST_TOKEN
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_PROTOCOL = "vllm.entrypoints.openai.completion.protocol"
_PROCESSOR = "vllm.v1.engine.input_processor"


def mark(params: Any) -> None:
    """``params`` (a ``SamplingParams``) are those of a raw completion."""
    if params.structured_outputs is not None and front_end.serves(params.structured_outputs._backend):
        params.extra_args = {**(params.extra_args or {}), FROM_FIRST_TOKEN: True}  # a new one: it may be the request's


def is_marked(params: Any) -> bool:
    """Whether `mark` has seen these parameters (or those they are a copy of)."""
    return (getattr(params, "extra_args", None) or {}).get(FROM_FIRST_TOKEN) is True


def _to_sampling_params_with(original: Any) -> Any:
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        params = original(self, *args, **kwargs)
        mark(params)
        return params

    return to_sampling_params


def _process_inputs_with(original: Any) -> Any:
    def process_inputs(self: Any, request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        request = original(self, request_id, prompt, params, *args, **kwargs)
        if is_marked(params) and request.reasoning_ended is None:
            request.reasoning_ended = True
        return request

    return process_inputs


def _apply() -> None:
    request_class = importlib.import_module(_PROTOCOL).CompletionRequest
    processor_class = importlib.import_module(_PROCESSOR).InputProcessor
    replace_once(request_class, "to_sampling_params", _to_sampling_params_with)
    replace_once(processor_class, "process_inputs", _process_inputs_with)


HOOK = Hook(
    name="raw-completions",
    summary="a completion is constrained from its first token, reasoning parser or not",
    targets=(
        Target(_PROTOCOL, "CompletionRequest.to_sampling_params", ("self",)),
        Target(_PROCESSOR, "InputProcessor.process_inputs", ("self", "request_id", "prompt", "params")),
        Target("vllm.v1.engine", "EngineCoreRequest.reasoning_ended:"),
    ),
    apply=_apply,
    required=False,
    without_it="with a reasoning parser, completions of a model that does not reason are free text",
)
