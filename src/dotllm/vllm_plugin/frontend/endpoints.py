"""A request of an API: refused before its response begins, with the place of what is wrong in the request.

The engine compiles every specification, and ends what it refuses with the reason (`errors`). For a request
that is not streamed that is HTTP 400. The response of a streamed one begins before that in vLLM, so here a constrained
stream begins with the engine's first word: the endpoint waits for it, and keeps what the API says before (`_begun`). A
refusal, a full queue, whatever ends the request without a token is its HTTP status then, on every API.

Two kinds begin before the engine has compiled: reasoning, and responses in the background. These are checked in the
front end, too, beside its event loop (`validation_cache`), before the response begins.

What is known of a request while its endpoint runs is a `Call`, in a context variable: vLLM makes its parameters, and
gives them to its engine, several calls below.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from dotllm.errors import SpecError
from dotllm.vllm_plugin.frontend import completions, engine_info, unsupported_fields, validation, validation_cache
from dotllm.vllm_plugin.frontend.tool_calls import constraints, error_location
from dotllm.vllm_plugin.hook import Hook, Target

_OPENAI = "vllm.entrypoints.openai"
_COLLECTOR = "vllm.v1.engine.output_processor"

HOOK = Hook(
    name="endpoints",
    summary="a streamed request that is refused gets HTTP 400; a completion is constrained from its first token",
    targets=(
        Target("vllm.v1.engine.async_llm", "AsyncLLM.abort", ("self", "request_id", "internal")),
        Target(_COLLECTOR, "RequestOutputCollector.ready"),
        Target(_COLLECTOR, "RequestOutputCollector.output"),
    ),
    without_it="a streamed request that is refused gets HTTP 200 and an error event; fields that nobody reads are "
    "ignored; with a reasoning parser, completions of a model that does not reason are free text",
)


class NothingSaid(BaseException):
    """Ends a stream in which the engine has said nothing, for its cause. It is no ``Exception``, of which vLLM would
    make a last word of the stream, and a traceback in its log."""


class Call:
    """One request of an API, in its endpoint."""

    def __init__(self, serving: Any, request: Any) -> None:
        self.request = request
        # Those of ``/inference/v1/generate`` come with the request, others are made later.
        self.params = getattr(request, "sampling_params", None)
        self.of_anthropic = hasattr(serving, "create_messages")
        self.in_background = bool(getattr(request, "background", False))
        self.streams = bool(getattr(request, "stream", False)) and not self.in_background
        self.answered = False
        """Whether the engine has said something for this request."""

    def located(self, error: BaseException | None) -> Any:
        """A refusal with its place in the request, where that is in a tool; any other error as it is."""
        from vllm.exceptions import VLLMValidationError

        tag = getattr(getattr(self.params, "structured_outputs", None), "structural_tag", None)
        tools = getattr(self.request, "tools", None)
        if not tag or not tools or getattr(self.request, "tool_choice", None) == "none":
            return error
        if not isinstance(error, VLLMValidationError):
            return error
        message = error_location.located(str(error), tag, tools, of_anthropic=self.of_anthropic)
        return error if message == str(error) else VLLMValidationError(message)


_call: ContextVar[Call | None] = ContextVar("dotllm_call", default=None)


async def _answer(call: Call, answer: Any) -> Any:
    """``answer`` of an endpoint, once it may leave. Raises what the request is refused with."""
    if not engine_info.is_constrained(call.params):
        return answer
    if call.in_background:
        await _validate(call)
    if not call.streams or not isinstance(answer, AsyncGenerator):
        return answer
    try:
        chunks = await _begun(call, answer)
        if engine_info.may_reason():
            await _validate(call)
    except BaseException:
        await answer.aclose()
        raise
    return _continued(chunks, answer)


async def _begun(call: Call, stream: AsyncGenerator[Any, None]) -> list[Any]:
    """What ``stream`` says up to the engine's first word. (It sends its request when it is first asked.)"""
    chunks = []
    while not call.answered:
        try:
            chunks.append(await anext(stream))
        except StopAsyncIteration:
            break
    return chunks


async def _continued(chunks: list[Any], stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        for chunk in chunks:
            yield chunk
        async for chunk in stream:
            yield chunk
    except NothingSaid as nothing:  # of another prompt, at the same moment as the first word
        raise RuntimeError("one of several prompts was not answered") from nothing.__cause__
    finally:
        await stream.aclose()


async def _validate(call: Call) -> None:
    from vllm.exceptions import VLLMValidationError

    try:
        specification = validation.specification_of(call.params, engine_info.config())
        await validation_cache.check_beside(specification, engine_info.token_names)
    except SpecError as error:
        raise VLLMValidationError(str(error)) from error


@HOOK.replaces(  # Anthropic's and Cohere's APIs go through that of chats
    f"{_OPENAI}.chat_completion.serving:OpenAIServingChat.create_chat_completion",
    f"{_OPENAI}.completion.serving:OpenAIServingCompletion.create_completion",
    f"{_OPENAI}.responses.serving:OpenAIServingResponses.create_responses",
    "vllm.entrypoints.scale_out.token_in_token_out.serving:ServingTokens.serve_tokens",
)
def _endpoint_with(original: Any) -> Any:
    async def endpoint(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        from vllm.exceptions import VLLMValidationError

        call = Call(self, request)
        token = _call.set(call)
        try:
            return await _answer(call, await original(self, request, *args, **kwargs))
        except NothingSaid as nothing:
            raise call.located(nothing.__cause__) from None
        except VLLMValidationError as error:
            raise call.located(error) from None
        finally:
            _call.reset(token)

    return endpoint


@HOOK.replaces(
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_sampling_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_sampling_params",
    f"{_OPENAI}.responses.protocol:ResponsesRequest.to_sampling_params",
)
def _to_sampling_params_with(original: Any) -> Any:
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        unsupported_fields.refuse(self)
        params = original(self, *args, **kwargs)
        constraints.refuse_unforced(self, params)
        call = _call.get()
        if call is not None:
            call.request, call.params = self, params
        return params

    return to_sampling_params


@HOOK.replaces("vllm.v1.engine.async_llm:AsyncLLM.add_request")
def _add_request_with(original: Any) -> Any:
    async def add_request(self: Any, request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        call, constrained = _call.get(), engine_info.is_constrained(params)
        if constrained:
            validation.claim(params, engine_info.config())  # the verdict is the engine's
        if call is None:
            return await original(self, request_id, prompt, params, *args, **kwargs)
        if constrained and completions.is_one(call.request) and kwargs.get("reasoning_ended") is None:
            kwargs["reasoning_ended"] = True
        if not (constrained and call.streams):
            call.answered = True
            return await original(self, request_id, prompt, params, *args, **kwargs)
        try:
            collector = await original(self, request_id, prompt, params, *args, **kwargs)
            await _wait_for_output(self, collector)
            if isinstance(collector.output, Exception):
                raise collector.output
        except Exception as error:
            if call.answered:  # another prompt of it
                raise
            raise NothingSaid from error
        call.answered = True
        return collector

    return add_request


async def _wait_for_output(engine: Any, collector: Any) -> None:
    """Until vLLM's ``RequestOutputCollector`` has something. Who goes away meanwhile ends the request, as in vLLM."""
    try:
        await collector.ready.wait()
    except asyncio.CancelledError:
        await engine.abort(collector.request_id, internal=True)
        raise
