"""A new specification is judged by the engine that compiles it, if it can say so soon.

Judging is the first half of a compile (`verdicts`): one or two milliseconds for a typical specification, which came
before everything that the engine does for the request. So requests of the completion APIs with a specification that is
new, and not large, are sent as they are. If the engine answers, it has compiled the specification, and has found it
good with that. If it answers with an error, or not in time (`DELAY`, `STREAM_DELAY`), or if the request may reason
before its constraint begins, the front end judges. What the client sees is the same: nothing of an answer leaves before
there is a verdict (the headers of a stream are such a thing), a refusal is HTTP 400 for streams, too, and it is always
the front end's. A refused request is cancelled like one whose client has gone.

Nothing is enforced here: the engine constrains every request that has a constraint, or ends it (`request_errors`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from dotllm import cpus
from dotllm.compilation.specification import Specification
from dotllm.errors import SpecError
from dotllm.vllm_plugin import front_end, verdicts
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

# Characters. Larger ones are judged before they are sent: their compile is work that a request which is refused had
# better not cause. (Up to here it takes mostly less than 30 ms, in a process of its own; of 110 real schemas 13 have
# more than 8,192, and with these judged first their first tokens came 4 ms later.)
LARGEST = 1 << 16
# Seconds from sending to judging.
DELAY = 0.1
# The same for streams. Their response begins with the verdict, which takes two milliseconds that the first token should
# not wait for; so it is given here. At once where there are processors for both, so that neither the judgement nor the
# response is in the first token's way (H200, 0.5B: a first token after 10 ms, 1.15 times the unconstrained one with a
# judgement after 8 ms, 1.02 with one after 1); else when the engine has launched the step and, mostly, compiled.
STREAM_DELAY = 0.001 if cpus.usable() >= 4 else 0.008
# Characters of which that holds. To judge more takes longer than beginning the response, so that is left to the engine.
# (4,000 to 8,192: 1.31 times the unconstrained first token with a judgement, 1.11 without.)
SHORT = 4096

# Module, class, and the coroutine that takes a request.
_DOORS = (
    ("vllm.entrypoints.openai.chat_completion.serving", "OpenAIServingChat", "create_chat_completion"),
    ("vllm.entrypoints.openai.completion.serving", "OpenAIServingCompletion", "create_completion"),
)

# How a stream begins that has something of the engine's to say: those of OpenAI's APIs, and Anthropic's, which come
# here in their own form since 0.33. What begins otherwise may be an error, of which every API has a form of its own.
_ANSWERS = ('data: {"id"', "event: message_start")

SpecialTokens = Callable[[], Mapping[str, int]]


class LateVerdict:
    """The verdicts that one request waits for. Lives in the event loop."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self._pending: dict[Specification, SpecialTokens] = {}
        self._decided = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[Any] | None = None

    def put_off(self, specification: Specification, special_tokens: SpecialTokens) -> bool:
        """Whether ``specification`` is judged later."""
        if specification.size > LARGEST or verdicts.is_known(specification):
            return False
        self._pending[specification] = special_tokens
        return True

    def soon(self) -> None:
        """The request is about to be sent."""
        if self._pending and self._timer is None:
            short = sum(specification.size for specification in self._pending) <= SHORT
            delay = STREAM_DELAY if short and self._running is None else DELAY
            self._timer = asyncio.get_running_loop().call_later(delay, self._decide)

    async def of(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """What ``answer`` returns, once that may leave. Raises the refusal."""
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
            self._decide()
            self._raise_refusal()
            raise
        finally:
            running, self._running = self._running, None
        if self.refusal is not None and (uncancel := getattr(running, "uncancel", None)) is not None:
            uncancel()  # it was this that cancelled the task (Python 3.11 counts)
        if isinstance(result, AsyncGenerator) and self._pending:
            return await self._begun(result)
        if result is None or hasattr(result, "error"):  # vLLM's ErrorResponse
            self._decide()
        else:
            self._answered()
        self._raise_refusal()
        return result

    async def _begun(self, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """``stream``, which sends its request when it is first asked for something, and its verdict."""
        first = asyncio.ensure_future(anext(stream))
        try:
            await asyncio.wait((first, self._decided), return_when=asyncio.FIRST_COMPLETED)
            if first.done() and first.exception() is None and str(first.result()).startswith(_ANSWERS):
                self._answered()
            else:
                self._decide()
            self._raise_refusal()
        except BaseException:
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await first
            await stream.aclose()
            raise
        return _continued(first, stream)

    def _answered(self) -> None:
        """The engine has said something for this request, and no error."""
        if not front_end.may_reason():
            for specification in self._pending:
                verdicts.accept(specification)
        self._decide()

    def _decide(self) -> None:
        """Judge now what has been put off, and is not known yet. Never raises."""
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, {}
        for specification, special_tokens in pending.items():
            try:
                verdicts.check(specification, special_tokens)
            except Exception as error:
                self.refusal = as_refusal(error)
                if self._running is not None:
                    self._running.cancel()
                break
        if not self._decided.done():
            self._decided.set_result(None)

    def _raise_refusal(self) -> None:
        if self.refusal is not None:
            raise self.refusal


def as_refusal(error: Exception) -> Exception:
    """What vLLM answers with HTTP 400, for a `SpecError`; any other error as it is."""
    from vllm.exceptions import VLLMValidationError

    if not isinstance(error, SpecError):
        return error
    refusal: Exception = VLLMValidationError(str(error))
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


def _guarded(original: Any) -> Any:
    async def create(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if _current.get() is not None:  # one door behind another
            return await original(self, request, *args, **kwargs)
        late = LateVerdict()
        token = _current.set(late)
        try:
            return await late.of(original(self, request, *args, **kwargs))
        finally:
            _current.reset(token)

    return create


def _apply() -> None:
    for module, name, method in _DOORS:
        replace_once(getattr(importlib.import_module(module), name), method, _guarded)


HOOK = Hook(
    name="late-verdict",
    summary="a new specification is judged by the engine that compiles it",
    targets=tuple(Target(module, f"{name}.{method}", ("self", "request")) for module, name, method in _DOORS),
    apply=_apply,
    required=False,
    without_it="a new specification is judged before its request is sent",
)
