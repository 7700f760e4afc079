"""A new specification is judged by the engine that compiles it, if it can say so soon.

Judging is the first half of a compile (`verdicts`): one or two milliseconds for a typical specification, which came
before everything that the engine does for the request. So requests of the completion APIs with a specification that is
new, and not large, are sent as they are. If the engine answers, it has compiled the specification, and has found it
good with that. If it answers with an error, or not in time (`DELAY_S`, `STREAM_DELAY_S`), or if the request may reason
before its constraint begins, the front end judges: on a thread, so that nobody else waits for it (`verdicts.settle`).
What the client sees is the same: nothing of an answer leaves before there is a verdict (the headers of a stream are
such a thing), and a refusal is HTTP 400 for streams, too. A refused request is cancelled like one whose client has
gone. Where judging takes too long the engine's word is waited for instead: its first one, as everything depends on it.

The Responses API has a stream begin before the engine has said anything, and rendering asks no engine at all. There the
answer waits for the front end's verdict.

Nothing is enforced here: the engine constrains every request that has a constraint, or ends it (`request_errors`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from dotllm import cpus
from dotllm.compilation.specification import Specification
from dotllm.errors import SpecError
from dotllm.vllm_plugin.engine_core import request_errors
from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend import verdicts
from dotllm.vllm_plugin.frontend.tool_calls import error_location as tool_places
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

# Characters. Larger ones are judged before they are sent: their compile is work that a request which is refused had
# better not cause. (Up to here it takes mostly less than 30 ms, in a process of its own; of 110 real schemas 13 have
# more than 8,192, and with these judged first their first tokens came 4 ms later.)
LARGEST = 1 << 16
# From sending to judging.
DELAY_S = 0.1
# The same for streams. Their response begins with the verdict, which takes two milliseconds that the first token should
# not wait for; so it is given here. At once where there are processors for both, so that neither the judgement nor the
# response is in the first token's way (H200, 0.5B: a first token after 10 ms, 1.15 times the unconstrained one with a
# judgement after 8 ms, 1.02 with one after 1); else when the engine has launched the step and, mostly, compiled.
STREAM_DELAY_S = 0.001 if cpus.usable() >= 4 else 0.008
# Characters of which that holds. To judge more takes longer than beginning the response, so that is left to the engine.
# (4,000 to 8,192: 1.31 times the unconstrained first token with a judgement, 1.11 without.)
SHORT = 4096

# Module, class, and the coroutine that takes a request.
_DOORS = (
    ("vllm.entrypoints.openai.chat_completion.serving", "OpenAIServingChat", "create_chat_completion"),
    ("vllm.entrypoints.openai.completion.serving", "OpenAIServingCompletion", "create_completion"),
)
# Those whose answer may leave before the engine has said anything.
_OWN_DOORS = (
    ("vllm.entrypoints.openai.responses.serving", "OpenAIServingResponses", "create_responses"),
    ("vllm.entrypoints.scale_out.render.serving", "ServingRender", "render_chat_request"),
    ("vllm.entrypoints.scale_out.render.serving", "ServingRender", "render_completion_request"),
)

# How a stream begins that has something of the engine's to say: those of OpenAI's APIs, and Anthropic's, which come
# here in their own form since 0.33. What begins otherwise may be an error, of which every API has a form of its own.
_ANSWERS = ('data: {"id"', "event: message_start")
# Before {"error": …}, with which OpenAI's streams say what a response would have said with a status.
_ERROR = "data: "

SpecialTokens = Callable[[], Mapping[str, int]]


class LateVerdict:
    """The verdicts that one request waits for. Lives in the event loop."""

    def __init__(self, *, engine_answers: bool = True) -> None:
        """``engine_answers``: an answer is the engine's, so it has compiled what the request asks for."""
        self.refusal: Exception | None = None
        self._engine_answers = engine_answers
        self._pending: dict[Specification, SpecialTokens] = {}
        self._decided = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._judging: asyncio.Task[None] | None = None
        self._running: asyncio.Task[Any] | None = None

    def put_off(self, specification: Specification, special_tokens: SpecialTokens) -> bool:
        """Whether ``specification`` is judged later."""
        if verdicts.is_known(specification):
            return False
        self._pending[specification] = special_tokens
        return True

    async def before_sending(self) -> None:
        """Judge what is too large to be sent as it is. Raises the refusal."""
        if any(specification.size > LARGEST for specification in self._pending):
            await self._judge(verdicts.VERDICT_TIMEOUT_S)
            self._raise_refusal()

    def soon(self) -> None:
        """The request is about to be sent."""
        if self._pending and self._timer is None:
            short = sum(specification.size for specification in self._pending) <= SHORT
            delay = STREAM_DELAY_S if short and self._running is None else DELAY_S
            self._timer = asyncio.get_running_loop().call_later(delay, self._begin)

    async def of(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """What ``answer`` returns, once that may leave. Raises the refusal."""
        try:
            return await self._of(answer)
        finally:
            for waiting in (self._timer, self._judging):
                if waiting is not None:
                    waiting.cancel()

    async def _of(self, answer: Coroutine[Any, Any, Any]) -> Any:
        self._running = asyncio.current_task()
        try:
            result = await answer
        except asyncio.CancelledError:
            if self.refusal is None:
                raise
            result = None
        except Exception:
            # The engine may have found out first. (It is over: nothing is left to be cancelled, least of all who asks.)
            self._running = None
            await self._judge(verdicts.VERDICT_TIMEOUT_S)
            self._raise_refusal()
            raise
        finally:
            running, self._running = self._running, None
        if self.refusal is not None and (uncancel := getattr(running, "uncancel", None)) is not None:
            uncancel()  # it was this that cancelled the task (Python 3.11 counts)
        if isinstance(result, AsyncGenerator) and self._pending:
            return await self._begun(result)
        await self._said(answered=result is not None and not hasattr(result, "error"))  # vLLM's ErrorResponse
        return result

    async def _begun(self, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """``stream``, which sends its request when it is first asked for something, and its verdict."""
        first = asyncio.ensure_future(anext(stream))
        try:
            await asyncio.wait((first, self._decided), return_when=asyncio.FIRST_COMPLETED)
            self._raise_refusal()
            if not self._decided.done():
                begin = str(first.result()) if first.exception() is None else ""
                await self._said(answered=begin.startswith(_ANSWERS))
                self._raise_error(begin)
        except BaseException:
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await first
            await stream.aclose()
            raise
        return _continued(first, stream)

    async def _said(self, *, answered: bool) -> None:
        """Something has been said for this request, the ``answered`` of an engine or an error. Raises the refusal."""
        if answered and self._engine_answers and not front_end.may_reason():
            while self._pending:
                verdicts.accept(self._pending.popitem()[0])
        await self._judge(verdicts.VERDICT_TIMEOUT_S)
        self._raise_refusal()

    def _begin(self) -> None:
        self._judging = asyncio.ensure_future(self._judge_in_time())

    async def _judge_in_time(self) -> None:
        """Judge while the engine works. What it says meanwhile counts, too, however long the judgement takes."""
        if await self._judge(None) and not self._decided.done():
            self._decided.set_result(None)
        if self.refusal is not None and self._running is not None:
            self._running.cancel()

    async def _judge(self, timeout_s: float | None) -> bool:
        """Whether all that has been put off has a verdict. Never raises."""
        known = True
        for specification, special_tokens in list(self._pending.items()):
            try:
                if not await verdicts.settle(specification, special_tokens, timeout_s):
                    known = False
                    continue
            except Exception as error:
                self.refusal = as_refusal(error)
                self._pending.clear()
                return True
            self._pending.pop(specification, None)
        return known

    def _raise_refusal(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def _raise_error(self, begin: str) -> None:
        """Raise the error that a stream begins with, which is all it has to say: its response has not begun yet."""
        try:
            error = json.loads(begin.removeprefix(_ERROR))["error"]
            exception = request_errors.as_http(int(error["code"]), str(error["message"]))
        except (ValueError, KeyError, TypeError):  # no error, or in another API's form
            return
        raise exception


def as_refusal(error: Exception) -> Exception:
    """What vLLM answers with HTTP 400, for a `SpecError`, with its place in the request; any other error as it is."""
    from vllm.exceptions import VLLMValidationError

    if not isinstance(error, SpecError):
        return error
    refusal: Exception = VLLMValidationError(str(tool_places.located(error)))
    refusal.__cause__ = error
    return refusal


async def _continued(first: asyncio.Future[Any], stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        yield await first
        async for chunk in stream:
            yield chunk
    except StopAsyncIteration:  # of the first one
        return
    finally:
        first.cancel()
        await stream.aclose()


_current: ContextVar[LateVerdict | None] = ContextVar("dotllm_late_verdict", default=None)


def current() -> LateVerdict | None:
    """That of the request at hand, if its verdicts may be late."""
    return _current.get()


def _guard(original: Any, *, engine_answers: bool) -> Any:
    async def create(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if _current.get() is not None:  # one door behind another
            return await original(self, request, *args, **kwargs)
        late = LateVerdict(engine_answers=engine_answers)
        token = _current.set(late)
        try:
            return await late.of(original(self, request, *args, **kwargs))
        finally:
            _current.reset(token)

    return create


def _guarded(original: Any) -> Any:
    return _guard(original, engine_answers=True)


def _own_guarded(original: Any) -> Any:
    return _guard(original, engine_answers=False)


def _apply() -> None:
    for doors, make in ((_DOORS, _guarded), (_OWN_DOORS, _own_guarded)):
        for module, name, method in doors:
            replace_once(getattr(importlib.import_module(module), name), method, make)


HOOK = Hook(
    name="late-verdict",
    summary="a new specification is judged by the engine that compiles it",
    targets=tuple(
        Target(module, f"{name}.{method}", ("self", "request")) for module, name, method in _DOORS + _OWN_DOORS
    ),
    apply=_apply,
    required=False,
    without_it="a new specification is judged before its request is sent",
)
