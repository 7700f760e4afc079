"""A streamed request that is refused gets HTTP 400, too.

vLLM validates parameters when the engine takes the request. For a streamed one the response has begun by then: the
client sees 200 and an error event. Here the OpenAI requests are judged when their parameters are made, and those of
``/inference/v1/generate``, which bring their parameters, when they come: before any response. The engine's validation
then finds the verdict remembered.
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin import front_end, tools_and_format, unread_fields, validation
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_REQUESTS = {
    "vllm.entrypoints.openai.chat_completion.protocol": "ChatCompletionRequest",
    "vllm.entrypoints.openai.completion.protocol": "CompletionRequest",
    "vllm.entrypoints.openai.responses.protocol": "ResponsesRequest",
}
_TOKENS = "vllm.entrypoints.scale_out.token_in_token_out.serving"


def judge(params: Any) -> None:
    """Refuse ``params`` (a ``SamplingParams``) if they go to dotllm and cannot be enforced.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    structured = params.structured_outputs
    if structured is None or structured.all_constraints_none() or front_end.config() is None:
        return
    if front_end.serves(structured._backend):
        validation.refuse_model(front_end.model_config())
        validation.judge(params, front_end.config(), front_end.special_tokens)


def _to_sampling_params_with(original: Any) -> Any:
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        unread_fields.refuse(self)
        params = original(self, *args, **kwargs)
        tools_and_format.refuse_unforced(self, params)
        judge(params)
        return params

    return to_sampling_params


def _judge_in(module: str, name: str) -> None:
    request_class = getattr(importlib.import_module(module), name)
    replace_once(request_class, "to_sampling_params", _to_sampling_params_with)


def _serve_tokens_with(original: Any) -> Any:
    async def serve_tokens(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        judge(request.sampling_params)
        return await original(self, request, *args, **kwargs)

    return serve_tokens


def _apply_to_tokens() -> None:
    replace_once(importlib.import_module(_TOKENS).ServingTokens, "serve_tokens", _serve_tokens_with)


def _apply() -> None:
    for module, name in _REQUESTS.items():
        _judge_in(module, name)


HOOK = Hook(
    name="early-refusal",
    summary="a streamed request that is refused gets HTTP 400, not an error event after 200",
    targets=(
        *(Target(module, f"{name}.to_sampling_params", ("self",)) for module, name in _REQUESTS.items()),
        Target("vllm.sampling_params", "StructuredOutputsParams.all_constraints_none", ("self",)),
    ),
    apply=_apply,
    required=False,
    without_it="a streamed request that is refused gets HTTP 200 and an error event",
)

TOKENS_HOOK = Hook(
    name="early-refusal-tokens",
    summary="the same for /inference/v1/generate",
    targets=(Target(_TOKENS, "ServingTokens.serve_tokens", ("self", "request")),),
    apply=_apply_to_tokens,
    required=False,
    without_it="a streamed request to /inference/v1/generate that is refused gets HTTP 200 and an error event",
)
