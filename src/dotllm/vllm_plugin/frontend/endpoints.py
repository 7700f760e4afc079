"""A request of an API: refused before its response begins, with the place of what is wrong in the request.

The engine compiles every specification, and ends what it refuses with the reason (`errors`). For a request that is not
streamed, such an end is HTTP 400. vLLM begins the response of a stream before the engine has compiled. Here the
endpoint of a constrained stream first waits for the engine's first output, and keeps back what the API would send
earlier (`_begun`). So everything that ends a request without a token, such as a refusal or a full queue, becomes the
HTTP status on every API.

Two kinds begin before the engine has compiled: reasoning, and responses in the background. These are checked in the
front end, too, beside its event loop (`validation_cache`), before the response begins.

A completion is constrained from its first token, also if the server has a reasoning parser. vLLM would constrain
nothing before the reasoning ends; but no parser looks for reasoning in a completion, so free text would be its answer.
We tell the engine that its reasoning has ended. A rendered request (``/v1/completions/render``) says the same in a
field, which reaches ``/inference/v1/generate``.

A context variable holds what is known of a request while its endpoint runs (`Call`). The endpoint cannot pass it on as
an argument: vLLM makes the request's parameters, and gives them to its engine, several calls below.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel

from dotllm.compilation import validation_cache
from dotllm.diagnosis import tool_place
from dotllm.diagnosis.openai_error import error_fields
from dotllm.vllm_plugin.frontend import engine_info, friction, unsupported_fields, validation
from dotllm.vllm_plugin.frontend.refusal_response import refusal_response
from dotllm.vllm_plugin.frontend.tool_calls import constraints
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import AsyncLLM, RequestOutputCollector, SamplingParams

_OPENAI = "vllm.entrypoints.openai"
_TOKENS = "vllm.entrypoints.scale_out.token_in_token_out"

HOOK = Hook(
    name="endpoints",
    summary="a streamed request that is refused gets HTTP 400; a completion is constrained from its first token; "
    "use_beam_search with a constraint is refused",
    targets=(
        Target(f"{_TOKENS}.protocol", "GenerateRequest.reasoning_ended"),
        Target("vllm.v1.engine", "EngineCoreRequest.reasoning_ended"),
        Target("vllm.entrypoints.serve.engine.protocol", "ErrorInfo.code"),
        Target("vllm.entrypoints.serve.engine.protocol", "ErrorResponse.error"),
    ),
    without_it="a streamed request that is refused gets HTTP 200 and an error event; fields that nobody reads are "
    "ignored, and constraints with online beam search; with a reasoning parser, completions of a model that does not "
    "reason are free text",
)


class NothingSaid(BaseException):
    """Ends a stream without any output, for ``error``. This is not an ``Exception``: vLLM would write an exception into
    the stream, and its traceback into the log.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


class Call:
    """One request of an API, in its endpoint."""

    def __init__(self, serving: object, request: Any) -> None:
        self.request = request
        # Those of ``/inference/v1/generate`` come with the request, others are made later.
        self.params: SamplingParams | None = getattr(request, "sampling_params", None)
        self.of_anthropic = hasattr(serving, "create_messages")
        self.is_completion = hasattr(serving, "create_completion")
        self.in_background = bool(getattr(request, "background", False))
        self.streams = bool(request.stream) and not self.in_background
        self.wants_friction = False
        self.lora_request: object = None
        self.reasoning_ended: bool | None = None
        self.answered = False
        """Whether the engine has said something for this request."""

    def located(self, message: str) -> str:
        """The message of a refusal with its place in the request, where that is in a tool."""
        tag = getattr(getattr(self.params, "structured_outputs", None), "structural_tag", None)
        tools = getattr(self.request, "tools", None)
        if not tag or not tools or self.request.tool_choice == "none":
            return message
        return tool_place.located(message, tag, tools, of_anthropic=self.of_anthropic)


_call: ContextVar[Call | None] = ContextVar("dotllm_call", default=None)


async def _answer(call: Call, answer: Any) -> Any:
    """``answer`` of an endpoint, once it may leave. Raises what the request is refused with."""
    if not engine_info.is_constrained(call.params):
        return answer
    if call.in_background or (call.streams and engine_info.may_reason()):
        with validation.refused_as_by_vllm():
            specification = validation.specification_of(call.params, engine_info.config())
            await validation_cache.check_beside(specification, engine_info.token_names)
    return await _begun(call, answer) if call.streams and isinstance(answer, AsyncGenerator) else answer


async def _begun(call: Call, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """``stream``, after the engine's first output. (The first `anext` sends the request.)"""
    chunks = []
    try:
        while not call.answered:
            chunks.append(await anext(stream))
    except StopAsyncIteration:
        pass
    except BaseException as error:
        await stream.aclose()
        raise (error.error if isinstance(error, NothingSaid) else error) from None
    return _continued(chunks, stream)


async def _continued(chunks: list[Any], stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        for chunk in chunks:
            yield chunk
        async for chunk in stream:
            yield chunk
    except NothingSaid as nothing:  # of another prompt, at the same moment as the first word
        raise RuntimeError("one of several prompts was not answered") from nothing.error
    finally:
        await stream.aclose()


@HOOK.replaces(  # Anthropic's and Cohere's APIs go through that of chats
    f"{_OPENAI}.chat_completion.serving:OpenAIServingChat.create_chat_completion",
    f"{_OPENAI}.completion.serving:OpenAIServingCompletion.create_completion",
    f"{_OPENAI}.responses.serving:OpenAIServingResponses.create_responses",
    f"{_TOKENS}.serving:ServingTokens.serve_tokens",
)
async def _endpoint(self: object, request: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    from vllm.exceptions import VLLMValidationError

    call = Call(self, request)
    token = _call.set(call)
    try:
        answer = await _answer(call, await original(self, request, *args, **kwargs))
        if call.wants_friction:
            engine: Any = getattr(self, "engine_client", None)
            await friction.add(engine, call.params, call.lora_request, call.reasoning_ended, answer)
        return answer
    except VLLMValidationError as error:
        message, code = call.located(error.args[0]), getattr(error, "dotllm_code", "")
        if code and type(self).__module__.startswith((_OPENAI, _TOKENS)):  # other APIs have errors of their own
            return refusal_response()(error=error_fields(message, code, call.request, error.parameter))
        raise VLLMValidationError(message, parameter=error.parameter, value=error.value) from None
    except (TypeError, UnicodeError):
        if engine_info.serves() and isinstance(request, BaseModel):
            unsupported_fields.refuse_half_characters_of_prompt(request)
        raise
    finally:
        _call.reset(token)


@HOOK.replaces(
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_sampling_params",
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_beam_search_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_sampling_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_beam_search_params",
    f"{_OPENAI}.responses.protocol:ResponsesRequest.to_sampling_params",
)
def _parameters(self: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    call = _call.get()
    if call is not None and friction.is_asked_for(self):
        call.wants_friction = True
    unsupported_fields.refuse_fields(self)
    params = original(self, *args, **kwargs)
    constraints.refuse_unenforced(self, params)
    if call is not None:
        call.request, call.params = self, params
        if call.wants_friction and not engine_info.is_constrained(params):
            validation.refuse(f"vllm_xargs.{friction.FIELD}: the request has no constraint", "vllm_xargs")
    return params


@HOOK.replaces("vllm.entrypoints.scale_out.render.serving:ServingRender.render_completion_request")
async def _render_completion_request(
    self: object, request: object, *args: Any, original: Original, **kwargs: Any
) -> Any:
    rendered = await original(self, request, *args, **kwargs)
    for one in rendered if isinstance(rendered, list) else ():
        if engine_info.is_constrained(one.sampling_params) and one.reasoning_ended is None:
            one.reasoning_ended = True
    return rendered


@HOOK.replaces("vllm.v1.engine.async_llm:AsyncLLM.add_request")
async def _add_request(
    self: AsyncLLM,
    request_id: str,
    prompt: object,
    params: SamplingParams,
    *args: Any,
    original: Original,
    **kwargs: Any,
) -> Any:
    if not engine_info.is_constrained(params):
        return await original(self, request_id, prompt, params, *args, **kwargs)
    validation.claim(params.structured_outputs)  # the engine decides
    call = _call.get()
    if call is not None and call.wants_friction:
        friction.refuse_what_is_not_text(prompt)
    if call is not None and call.is_completion and kwargs.get("reasoning_ended") is None:
        kwargs["reasoning_ended"] = True
    if call is not None:
        call.lora_request, call.reasoning_ended = kwargs.get("lora_request"), kwargs.get("reasoning_ended")
    if call is None or not call.streams:
        return await original(self, request_id, prompt, params, *args, **kwargs)
    try:
        collector: RequestOutputCollector = await original(self, request_id, prompt, params, *args, **kwargs)
        await _wait_for_output(self, collector)
    except Exception as error:
        if call.answered:  # another prompt of it
            raise
        raise NothingSaid(error) from error
    call.answered = True
    return collector


async def _wait_for_output(engine: AsyncLLM, collector: RequestOutputCollector) -> None:
    """Until there is something; raises it if it is an error. An error, or who goes away meanwhile, ends the request and
    its n answers, as in vLLM."""
    try:
        await collector.ready.wait()
        if isinstance(collector.output, Exception):
            raise collector.output
    except (Exception, asyncio.CancelledError):
        await engine.abort(collector.request_id, internal=True)
        raise
