"""A streamed request that is refused gets HTTP 400, too.

vLLM validates parameters when the engine takes the request. For a streamed one the response has begun by then: the
client sees 200 and an error event. Here the OpenAI requests are judged when their parameters are made, and those of
``/inference/v1/generate``, which bring their parameters, when they come: before any response. The engine's validation
then finds the verdict remembered.

vLLM makes parameters inside its event loop, where nobody waits for a judgement: only what is known is refused there,
and the rest put off (`late_verdict`). Whatever comes to the engine by another way is judged when it is added, by a
coroutine of vLLM's (`EngineClient`'s callers, batches of chats).
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend import late_verdict, unread_fields, validation, verdicts
from dotllm.vllm_plugin.frontend.tool_calls import constraints
from dotllm.vllm_plugin.frontend.tool_calls import error_location as tool_places
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_REQUESTS = {
    "vllm.entrypoints.openai.chat_completion.protocol": "ChatCompletionRequest",
    "vllm.entrypoints.openai.completion.protocol": "CompletionRequest",
    "vllm.entrypoints.openai.responses.protocol": "ResponsesRequest",
}
_ENGINE = "vllm.v1.engine.async_llm"
_TOKENS = "vllm.entrypoints.scale_out.token_in_token_out.serving"


def judge(params: Any) -> None:
    """Refuse ``params`` (a ``SamplingParams``) if they go to dotllm and are known not to be enforceable; what is not
    known is put off, or judged where no event loop waits.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    if _is_ours(params):
        validation.judge(params, front_end.config(), front_end.special_tokens, may_wait=not verdicts.in_event_loop())


async def settle(params: Any) -> None:
    """Refuse ``params`` (a ``SamplingParams``) if they go to dotllm and cannot be enforced.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    if _is_ours(params):
        await validation.settle(params, front_end.config(), front_end.special_tokens)


def _is_ours(params: Any) -> bool:
    structured = getattr(params, "structured_outputs", None)
    if structured is None or structured.all_constraints_none() or front_end.config() is None:
        return False
    if not front_end.serves(structured._backend):
        return False
    validation.refuse_model(front_end.model_config())
    return True


def _to_sampling_params_with(original: Any) -> Any:
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        unread_fields.refuse(self)
        params = original(self, *args, **kwargs)
        constraints.refuse_unforced(self, params)
        tool_places.remember(self, params)
        judge(params)
        return params

    return to_sampling_params


def _judge_in(module: str, name: str) -> None:
    request_class = getattr(importlib.import_module(module), name)
    replace_once(request_class, "to_sampling_params", _to_sampling_params_with)


def _serve_tokens_with(original: Any) -> Any:
    async def serve_tokens(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        await settle(request.sampling_params)
        return await original(self, request, *args, **kwargs)

    return serve_tokens


def _add_request_with(original: Any) -> Any:
    async def add_request(self: Any, request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(params, "structured_outputs", None) is None:
            return await original(self, request_id, prompt, params, *args, **kwargs)
        late = late_verdict.current()
        if late is None:
            await settle(params)
        else:
            await late.before_sending()
        with validation.judged():
            return await original(self, request_id, prompt, params, *args, **kwargs)

    return add_request


def _apply_to_engine() -> None:
    replace_once(importlib.import_module(_ENGINE).AsyncLLM, "add_request", _add_request_with)


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

ENGINE_HOOK = Hook(
    name="awaited-verdict",
    summary="what comes to the engine without a verdict is judged beside the event loop",
    targets=(Target(_ENGINE, "AsyncLLM.add_request", ("self", "request_id", "prompt", "params")),),
    apply=_apply_to_engine,
    required=False,
    without_it="it is judged inside the event loop, and everybody waits for that",
)
