"""Refuses an API request before its response begins, with the place of the fault in the request.

The engine compiles every specification, and ends a refused request with the reason (`errors`). For a request that is
not streamed, such an end is HTTP 400. vLLM begins the response of a stream before the engine has compiled. Here the
endpoint of a constrained stream first waits for the engine's first output, and holds back what the API would send
earlier (`_begun`). So everything that ends a request without a token, such as a refusal or a full queue, becomes an
HTTP status in every API.

Two kinds of answer begin before the engine has compiled: those that reason, and background responses. Their
specifications are also checked in the front end, on a thread (`validation_cache`), before the response begins.

``include_reasoning: false`` leaves the reasoning out of an answer. vLLM constrains such a chat from its first token, so
the model does not reason, and vLLM's parser mistakes the answer for reasoning and leaves it out. Here the model reasons
as usual, and the constraint begins after the reasoning.

A completion is constrained from its first token, even if the server has a reasoning parser. vLLM would constrain
nothing before the reasoning ends, but no parser looks for reasoning in a completion, so its answer would be free text.
We tell the engine that the reasoning has ended. A rendered request (``/v1/completions/render``) says the same in a
field, which reaches ``/inference/v1/generate``.

A stream that has begun can only end with an error event. vLLM logs a traceback with it, as for a bug; for a refusal,
dotllm logs none.

A forced call follows the schema of its tool, even if the client has not asked for that (`unasked`). If the engine
refuses such a schema, the request is sent again with the constraint that vLLM would make.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from dotllm.compilation import validation_cache
from dotllm.compilation.errors import UNAVAILABLE
from dotllm.diagnosis.openai_error import error_fields
from dotllm.errors import SpecError
from dotllm.vllm_plugin.api import response_headers, served, unsupported_fields
from dotllm.vllm_plugin.api.call import Call, current
from dotllm.vllm_plugin.api.refusal_response import refusal_response
from dotllm.vllm_plugin.enforce import engine_info, validation
from dotllm.vllm_plugin.extra.mass import record
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.tools import constraints, custom_tools, cut_calls
from dotllm.vllm_plugin.vllm_types import AsyncLLM, RequestOutputCollector, SamplingParams

_OPENAI = "vllm.entrypoints.openai"
_TOKENS = "vllm.entrypoints.scale_out.token_in_token_out"
_STREAMING = (f"{_OPENAI}.chat_completion.serving", f"{_OPENAI}.completion.serving", f"{_TOKENS}.serving")
"""vLLM's loggers that log the exception that ends a stream."""
_WITH_CODES = (_OPENAI, _TOKENS, "vllm.entrypoints.anthropic")

HOOK = Hook(
    summary="a streamed request that is refused gets HTTP 400; a completion is constrained from its first token; "
    "use_beam_search with a constraint is refused",
    targets=(
        Target(f"{_TOKENS}.protocol", "GenerateRequest.reasoning_ended"),
        Target("vllm.v1.engine", "EngineCoreRequest.reasoning_ended"),
        Target("vllm.entrypoints.serve.engine.protocol", "ErrorInfo.code"),
        Target("vllm.entrypoints.serve.engine.protocol", "ErrorResponse.error"),
    ),
    without_it="a streamed request that is refused gets HTTP 200 and an error event; fields that nobody reads, and "
    "constraints with online beam search, are ignored; with a reasoning parser, completions of a model that does not "
    "reason are free text",
    apply=lambda: _log_no_traceback_of_refusals(),
)


class NothingSaid(BaseException):
    """Ends a stream that has no output yet, because of ``error``. It is not an ``Exception``: vLLM would write an
    exception into the stream, and its traceback into the log.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _answer(call: Call, answer: Any) -> Any:
    """The ``answer`` of an endpoint, once it may be sent. Raises the error with which the request is refused."""
    if call.in_background or (call.streams and served.may_reason()):
        await _leave_what_is_refused(call)
    if not served.is_constrained(call.params):
        return answer
    stream = answer if call.streams and isinstance(answer, AsyncGenerator) else None
    with validation.refused_as_by_vllm():
        specification = validation.specification_of(call.params, engine_info.config())
        if not call.in_background and (stream is None or not served.may_reason()):
            answer = answer if stream is None else await _begun(call, stream)
        else:  # the engine compiles at the same time, and finds most refusals
            checking = asyncio.ensure_future(validation_cache.check_beside(specification, served.token_names))
            try:
                answer = answer if stream is None else await _begun(call, stream)
                await checking
            except BaseException:
                checking.cancel()
                if stream is not None:
                    await stream.aclose()
                raise
    await response_headers.warn_of(specification, call.located)
    return answer


async def _served(call: Call, answering: Awaitable[Any]) -> Any:
    """`_answer`. If vLLM fails on the request, find the cause, and refuse the request with it."""
    from vllm.exceptions import VLLMValidationError

    try:
        return await _answer(call, await answering)
    except (VLLMValidationError, TypeError, ValueError, RecursionError) as error:
        if engine_info.serves() and isinstance(call.request, BaseModel) and not getattr(error, "dotllm_code", ""):
            if isinstance(error, TypeError | UnicodeError):
                unsupported_fields.refuse_half_characters_of_prompt(call.request)
            unsupported_fields.refuse_too_deep(call.request)
        raise


async def _leave_what_is_refused(call: Call) -> None:
    """Before the answer begins, check a constraint that the client has not asked for; drop it if it is refused."""
    params, unasked = call.params, call.unasked
    if unasked is None or not unasked.is_in(params) or not served.is_constrained(params):
        return
    try:
        specification = validation.specification_of(params, engine_info.config())
        await validation_cache.check_beside(specification, served.token_names)
    except SpecError as error:
        if unasked.is_in(params):  # (`_sent` may have dropped it meanwhile)
            unasked.leave(params, call.located(str(error)))


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
    except NothingSaid as nothing:  # from another prompt, at the same moment as the first word
        raise RuntimeError("one of several prompts was not answered") from nothing.error
    finally:
        await stream.aclose()


@HOOK.replaces(  # Anthropic's and Cohere's APIs go through the chat endpoint
    f"{_OPENAI}.chat_completion.serving:OpenAIServingChat.create_chat_completion",
    f"{_OPENAI}.chat_completion.batch_serving:OpenAIServingChatBatch.create_batch_chat_completion",
    f"{_OPENAI}.completion.serving:OpenAIServingCompletion.create_completion",
    f"{_OPENAI}.responses.serving:OpenAIServingResponses.create_responses",
    f"{_TOKENS}.serving:ServingTokens.serve_tokens",
)
async def _endpoint(self: object, request: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
    from vllm.exceptions import GracefulHTTPError, VLLMValidationError

    call, engine = Call(self, request), getattr(self, "engine_client", None)
    token = current.set(call)
    with engine_info.of(engine):
        try:
            answer = await _served(call, original(self, request, *args, **kwargs))
            if call.record is not None:
                call.record.engine = engine
                answer = await call.record.add(answer)
            if served.is_constrained(call.params):
                cut_calls.leave_out(call.request, answer)
            return custom_tools.answered(call.request, answer)
        except VLLMValidationError as error:
            message, code = call.located(error.args[0]), getattr(error, "dotllm_code", "")
            if code and type(self).__module__.startswith(_WITH_CODES):  # Cohere's API has its own errors
                return refusal_response()(error=error_fields(message, code, call.request, error.parameter))
            raise VLLMValidationError(message, parameter=error.parameter, value=error.value) from None
        except GracefulHTTPError as error:
            if getattr(error, "dotllm_code", None) is None:
                raise
            response_headers.retry_later()
            if not type(self).__module__.startswith(_WITH_CODES):
                raise
            return create_error_response(error)
        finally:
            current.reset(token)


def _without_traceback(record: logging.LogRecord) -> bool:
    """A log filter: a refusal is logged in one line, as a warning."""
    error = record.exc_info[1] if record.exc_info else None
    if getattr(error, "dotllm_code", None) is not None:
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "a stream was ended: %s", (str(error),)
    return True


def _log_no_traceback_of_refusals() -> None:
    for name in _STREAMING:
        logging.getLogger(name).addFilter(_without_traceback)


@HOOK.replaces("vllm.entrypoints.serve.exception_handling.error_response:create_error_response")
def _create_error_response(message: str | Exception, *args: Any, original: Original, **kwargs: Any) -> Any:
    """vLLM also calls this for an error that ends a stream."""
    written, code = original(message, *args, **kwargs), getattr(message, "dotllm_code", None)
    if code is None:
        return written
    return refusal_response()(error={**written.error.model_dump(), "reason": code or UNAVAILABLE})


@HOOK.replaces(
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_sampling_params",
    f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.to_beam_search_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_sampling_params",
    f"{_OPENAI}.completion.protocol:CompletionRequest.to_beam_search_params",
    f"{_OPENAI}.responses.protocol:ResponsesRequest.to_sampling_params",
)
def _parameters(self: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    call = current.get()
    wanted = None if call is None else record.is_wanted(self, may_say=call.says_masses)
    unsupported_fields.refuse_fields(self)
    params = original(self, *args, **kwargs)
    constraints.refuse_unenforced(self, params)
    if call is not None:
        call.request, call.params = self, params
        if call.unasked is not None:
            call.unasked.constraint = params.structured_outputs
        if wanted is not None:
            call.record = call.record or wanted
            call.record.let_ask(params)
    return params


@HOOK.replaces(f"{_OPENAI}.chat_completion.protocol:ChatCompletionRequest.resolve_reasoning_ended")
def _resolve_reasoning_ended(self: Any, parser: Any, prompt_token_ids: list[int], *, original: Original) -> Any:
    if not self.include_reasoning and engine_info.serves():
        self = self.model_copy(update={"include_reasoning": True})
    return original(self, parser, prompt_token_ids)


@HOOK.replaces("vllm.entrypoints.scale_out.render.serving:ServingRender.render_completion_request")
async def _render_completion_request(
    self: object, request: object, *args: Any, original: Original, **kwargs: Any
) -> Any:
    rendered = await original(self, request, *args, **kwargs)
    for prompt in rendered if isinstance(rendered, list) else ():
        if served.is_constrained(prompt.sampling_params) and prompt.reasoning_ended is None:
            prompt.reasoning_ended = True
    return rendered


@HOOK.replaces("vllm.v1.engine.async_llm:AsyncLLM.add_request")
async def _add_request(
    self: AsyncLLM,
    request_id: str,
    prompt: object,
    params: object,
    *args: Any,
    original: Original,
    **kwargs: Any,
) -> Any:
    with engine_info.of(self):
        if not served.is_constrained(params):
            return await original(self, request_id, prompt, params, *args, **kwargs)
        validation.claim(params.structured_outputs)  # the engine decides
        call = current.get()
        if call is not None and call.record is None:
            record.refuse_what_is_not_said(params)
        if call is not None and call.is_completion and kwargs.get("reasoning_ended") is None:
            kwargs["reasoning_ended"] = True
        if call is not None and call.record is not None:
            call.record.reasoning_ended = kwargs.get("reasoning_ended")
        send = partial(original, self, request_id, prompt, params, *args, **kwargs)
        if call is None:
            return await send()
        if not call.streams:
            return await _sent(self, call, params, send)
        try:
            collector = await _sent(self, call, params, send)
            await _wait_for_output(self, collector)
        except Exception as error:
            if call.answered:  # for another of its prompts
                raise
            raise NothingSaid(error) from error
        call.answered = True
        return collector


async def _sent(
    engine: AsyncLLM, call: Call, params: SamplingParams, send: Callable[[], Awaitable[RequestOutputCollector]]
) -> RequestOutputCollector:
    """The outputs of a request; if a constraint that the client has not asked for is refused, those without it."""
    from vllm.exceptions import VLLMValidationError

    unasked = call.unasked
    if unasked is None or not unasked.is_in(params):
        return await send()
    try:
        collector = await send()
        await _wait_for_output(engine, collector)
    except VLLMValidationError as refusal:
        if unasked.is_in(params):  # (the check on the thread may have found the same)
            unasked.leave(params, call.located(refusal.args[0]))
        if params.structured_outputs is not None:
            validation.claim(params.structured_outputs)
        return await send()
    return collector


async def _wait_for_output(engine: AsyncLLM, collector: RequestOutputCollector) -> None:
    """Wait for the first output; raise it if it is an error. An error, or a client that disconnects meanwhile, ends the
    request and its n answers, as in vLLM."""
    try:
        await collector.ready.wait()
        if isinstance(collector.output, Exception):
            raise collector.output
    except (Exception, asyncio.CancelledError):
        await engine.abort(collector.request_id, internal=True)
        raise
