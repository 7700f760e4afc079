"""New specifications are judged after their request was sent, and before anything of its answer leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.compilation import Specification
from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend import late_verdict, verdicts
from dotllm.vllm_plugin.frontend.verdict_pool import VerdictPool

pytestmark = pytest.mark.serve

ANSWER = ['data: {"id":"chatcmpl-1"}\n\n', "second"]
GOOD, BAD = Specification.create("regex", "[0-9]{3}"), Specification.create("regex", "(")


def wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for name in ("DELAY_S", "STREAM_DELAY_S"):
        monkeypatch.setattr(late_verdict, name, seconds)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_memory", verdicts._Memory())
    monkeypatch.setattr(verdicts, "_pool", VerdictPool())
    wait(monkeypatch, 0.0)


class Door:
    """What a serving class of vLLM does with a request, as far as it matters: the request is a specification."""

    def __init__(self, *, seconds: float = 30.0, stream: bool = False, swallows: bool = False) -> None:
        self.seconds, self.stream, self.swallows = seconds, stream, swallows
        self.sent: list[Specification] = []
        self.known_when_sent: list[bool] = []
        self.cancelled = False

    async def _send(self, specification: Specification) -> None:
        late = late_verdict.current()
        if late is not None:
            await late.before_sending()
        if not verdicts.check_known(specification):
            assert late is not None and late.put_off(specification, dict)
        if late is not None:
            late.soon()
        self.sent.append(specification)
        self.known_when_sent.append(verdicts.is_known(specification))

    async def _engine(self, specification: Specification) -> AsyncGenerator[str, None]:
        await self._send(specification)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        for chunk in ANSWER:
            yield chunk

    async def create(self, request: Specification) -> Any:
        late = late_verdict.current()
        assert late is not None
        late.put_off(request, dict)
        if self.stream:
            return self._engine(request)
        try:
            return [chunk async for chunk in self._engine(request)]
        except asyncio.CancelledError:
            if self.swallows:  # as vLLM does: it takes this for a client that has gone
                return "client disconnected"
            raise

    def ask(self, request: Specification) -> Any:
        """The whole answer through our wrapper."""

        async def all_of_it() -> Any:
            try:
                answer = await late_verdict._guarded(Door.create)(self, request)
                if isinstance(answer, AsyncGenerator):
                    answer = [chunk async for chunk in answer]
                return answer
            finally:  # who has asked goes on: nothing is left of what has cancelled the request
                await asyncio.sleep(0)
                task = asyncio.current_task()
                assert task is not None and not getattr(task, "cancelling", lambda: 0)()

        return asyncio.run(asyncio.wait_for(all_of_it(), 20))


@pytest.mark.parametrize("stream", [False, True])
def test_good_one_is_sent_before_it_is_judged(stream: bool) -> None:
    door = Door(stream=stream, seconds=0.05)
    assert door.ask(GOOD) == ANSWER
    assert door.known_when_sent == [False] and verdicts.is_known(GOOD)
    assert door.ask(GOOD) == ANSWER and door.known_when_sent == [False, True]


@pytest.mark.parametrize(("stream", "swallows"), [(False, False), (False, True), (True, False)])
def test_bad_one_is_cancelled_and_refused_before_anything_leaves(stream: bool, swallows: bool) -> None:
    from vllm.exceptions import VLLMValidationError

    door = Door(stream=stream, swallows=swallows)
    with pytest.raises(VLLMValidationError) as late:
        door.ask(BAD)
    assert door.sent == [BAD] and door.known_when_sent == [False] and door.cancelled
    with pytest.raises(Exception, match="offset") as now:
        verdicts.check(BAD)
    assert str(late.value) == str(now.value)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_the_engine_is_its_verdict(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wait(monkeypatch, 1000.0)
    monkeypatch.setattr(verdicts, "_judge", lambda *_: pytest.fail("it has been compiled: why judge it?"))
    door = Door(stream=stream, seconds=0.0)
    assert door.ask(GOOD) == ANSWER and verdicts.is_known(GOOD)
    assert door.ask(GOOD) == ANSWER and door.known_when_sent == [False, True]


def test_a_long_one_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """To judge it would take longer than beginning the response of a stream."""
    monkeypatch.setattr(late_verdict, "DELAY_S", 1000.0)
    judged: list[Specification] = []
    monkeypatch.setattr(verdicts, "_judge", lambda specification, _: judged.append(specification))
    for length in (late_verdict.SHORT, late_verdict.SHORT + 1):
        specification = Specification.create("regex", "a" * length)
        assert Door(stream=True, seconds=0.05).ask(specification) == ANSWER
        assert verdicts.is_known(specification)
    assert [specification.size for specification in judged] == [late_verdict.SHORT]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_may_be_reasoning_is_no_verdict(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.exceptions import VLLMValidationError

    wait(monkeypatch, 1000.0)
    monkeypatch.setattr(front_end, "may_reason", lambda: True)
    with pytest.raises(VLLMValidationError):
        Door(stream=stream, seconds=0.0).ask(BAD)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (True, 'data: {"error": {}}\n\n'),
        (True, 'event: error\ndata: {"type":"error","error":{}}\n\n'),  # Anthropic's
        (True, 'data: {"type": "message-end", "delta": {"error": ""}}\n\n'),  # Cohere's
        (False, "object"),
    ],
)
def test_an_error_is_no_verdict(stream: bool, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM gives some errors back as a result, and those of a stream as an event of the API's own form."""
    from vllm.exceptions import VLLMValidationError

    async def says(self: Door, specification: Specification) -> AsyncGenerator[str, None]:
        await self._send(specification)
        yield error

    async def returns(self: Door, request: Specification) -> Any:
        answer = await create(self, request)
        return answer if stream else SimpleNamespace(error=error)

    create = Door.create
    wait(monkeypatch, 1000.0)
    monkeypatch.setattr(Door, "_engine", says)
    monkeypatch.setattr(Door, "create", returns)
    with pytest.raises(VLLMValidationError):
        Door(stream=stream).ask(BAD)


@pytest.mark.parametrize("stream", [False, True])
def test_the_front_ends_refusal_wins_over_the_engines(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine compiles the same specification, and may be the first to find out."""
    from vllm.exceptions import VLLMValidationError

    async def fails(self: Door, specification: Specification) -> AsyncGenerator[str, None]:
        await self._send(specification)
        raise RuntimeError("the engine's words")
        yield ""

    wait(monkeypatch, 1000.0)
    monkeypatch.setattr(Door, "_engine", fails)
    with pytest.raises(VLLMValidationError):
        Door(stream=stream).ask(BAD)
    with pytest.raises(RuntimeError, match="the engine's words"):
        Door(stream=stream).ask(GOOD)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Judgements take for ever."""
    go_on, judge = threading.Event(), verdicts._judge

    def slowly(specification: Specification, tokens: Any) -> None:
        go_on.wait(60)
        judge(specification, tokens)

    monkeypatch.setattr(verdicts, "_judge", slowly)
    monkeypatch.setattr(verdicts, "VERDICT_TIMEOUT_S", 0.05)
    yield
    go_on.set()
    while verdicts._pool._jobs:  # else they would be remembered in the next test
        time.sleep(0.001)


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("may_reason", [False, True])
def test_a_slow_judgement_holds_up_neither_its_request_nor_the_loop(
    stream: bool, may_reason: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "may_reason", lambda: may_reason)
    door = Door(stream=stream, seconds=0.05)

    async def ask() -> Any:
        answer = await late_verdict._guarded(Door.create)(door, GOOD)
        return [chunk async for chunk in answer] if stream else answer

    async def beside() -> float:
        longest, asked = 0.0, asyncio.create_task(ask())
        while not asked.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
        assert await asked == ANSWER
        return longest

    assert asyncio.run(asyncio.wait_for(beside(), 20)) < 10.0
    assert verdicts.is_known(GOOD) == (not may_reason)


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize(("code", "words"), [(400, "VLLMValidationError: too much"), (503, "too much")])
def test_an_error_of_the_engine_before_a_stream_has_begun_is_a_status(
    code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the front end does not know better."""

    async def says(self: Door, specification: Specification) -> AsyncGenerator[str, None]:
        await self._send(specification)
        yield f'data: {{"error": {{"message": "too much", "type": "T", "param": null, "code": {code}}}}}\n\n'
        yield "data: [DONE]\n\n"

    monkeypatch.setattr(Door, "_engine", says)
    with pytest.raises(Exception, match="too much") as error:
        Door(stream=True).ask(BAD)
    assert words in f"{type(error.value).__name__}: {error.value}"


def test_a_door_of_its_own_says_nothing_before_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses begin before the engine has said anything."""
    from vllm.exceptions import VLLMValidationError

    async def create(self: Door, request: Specification) -> Any:
        late = late_verdict.current()
        assert late is not None and late.put_off(request, dict)
        return begun() if self.stream else "queued"

    async def begun() -> AsyncGenerator[Any, None]:
        yield "created"

    wait(monkeypatch, 1000.0)
    for stream in (False, True):
        with pytest.raises(VLLMValidationError):
            asyncio.run(late_verdict._own_guarded(create)(Door(stream=stream), BAD))
        monkeypatch.setattr(verdicts, "_memory", verdicts._Memory())


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_goes_away_cancels_as_ever(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wait(monkeypatch, 1000.0)
    door = Door(stream=stream)

    async def goes() -> None:
        task = asyncio.create_task(late_verdict._guarded(Door.create)(door, GOOD))
        while not door.sent:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(goes(), 20))
    assert door.cancelled


def test_large_ones_are_judged_before_they_are_sent_and_known_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    wait(monkeypatch, 1000.0)
    large = Specification.create("regex", "a" * (late_verdict.LARGEST + 1))
    door = Door(seconds=0.0)
    assert door.ask(large) == ANSWER and door.known_when_sent == [True]
    monkeypatch.setattr(verdicts, "_judge", lambda *_: pytest.fail("it is known: why judge it?"))
    assert door.ask(large) == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_large_bad_ones_are_not_sent(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.exceptions import VLLMValidationError

    wait(monkeypatch, 1000.0)
    door = Door(stream=stream)
    with pytest.raises(VLLMValidationError):
        door.ask(Specification.create("regex", "a" * late_verdict.LARGEST + "("))
    assert door.sent == []


def test_one_door_behind_another_is_guarded_once() -> None:
    door = Door(seconds=0.0)

    async def outer(self: Door, request: Specification) -> Any:
        before = late_verdict.current()
        answer = await late_verdict._guarded(Door.create)(self, request)
        assert late_verdict.current() is before is not None
        return answer

    async def run() -> Any:
        answer = await late_verdict._guarded(outer)(door, GOOD)
        assert late_verdict.current() is None
        return answer

    assert asyncio.run(run()) == ANSWER
