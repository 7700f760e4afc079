"""The front end remembers a bounded number of validation results, and refusals without their tracebacks."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dotllm import cancellation
from dotllm.compilation import Specification, validation_cache
from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError


@pytest.fixture(autouse=True)
def fresh() -> None:
    validation_cache._remembered.cache_clear()


def test_good_ones_pass_and_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Specification] = []
    check = validation_cache._check
    monkeypatch.setattr(validation_cache, "_check", lambda spec, tokens: (checked.append(spec), check(spec, tokens)))
    for _ in range(3):
        validation_cache.check(Specification.create("regex", "[0-9]{3}"))
        validation_cache.check(Specification.create("json_schema", '{"type": "integer"}'))
        validation_cache.check(Specification.create("json_object", ""))
        validation_cache.check(Specification.create("choice", '["a"]'))
        validation_cache.check(Specification.create("grammar", 'start: "a"'))
    assert len(checked) == 5


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("regex", "(", InvalidSpecError),
        ("regex", r"(a)\1", UnsupportedError),
        ("json_schema", '{"type": 1}', InvalidSpecError),
        ("json_schema", "{", InvalidSpecError),
        (
            "json_schema",
            '{"type": "array", "contains": {"type": "null"}, "minContains": 2, "uniqueItems": true}',
            UnsupportedError,
        ),
        ("choice", "[]", InvalidSpecError),
        ("choice", '{"a": 1}', InvalidSpecError),
        ("choice", '["a", 1]', InvalidSpecError),
        ("choice", '["\\ud800"]', InvalidSpecError),
        ("grammar", "start: nowhere", InvalidSpecError),
        ("grammar", 'start: "a" start', InvalidSpecError),  # no text ever ends
        ("structural_tag", '{"format": {"type": "nonsense"}}', SpecError),
    ],
)
def test_refusals_are_the_same_the_second_time(kind: str, text: str, error: type[SpecError]) -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(error) as refusal:
            validation_cache.check(Specification.create(kind, text))
        caught.append(refusal.value)
    first, second = caught
    assert first is not second
    assert (str(first), first.pointer, first.keyword) == (str(second), second.pointer, second.keyword)


def test_options_are_part_of_the_question() -> None:
    validation_cache.check(Specification.create("json_schema", "{}"))
    with pytest.raises(SpecError):
        validation_cache.check(Specification.create("json_schema", "{}", {"whitespace_pattern": "("}))


def test_results_are_bounded() -> None:
    limit = validation_cache._remembered.cache_info().maxsize
    assert limit is not None
    for number in range(limit + 20):
        validation_cache._remembered(str(number))
    validation_cache.check(Specification.create("choice", '["a"]'))
    assert validation_cache._remembered.cache_info().currsize == limit


def test_what_is_remembered_of_a_refusal_holds_no_frames() -> None:
    specification = Specification.create("regex", "(")
    with pytest.raises(SpecError):
        validation_cache.check(specification)
    [error] = validation_cache._remembered(specification.key(b""))
    assert error is not None and error.__traceback__ is error.__context__ is error.__cause__ is None


def test_recursion_of_a_front_end_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(validation_cache, "_check", too_deep)
    with pytest.raises(SpecError, match="nested"):
        validation_cache.check(Specification.create("regex", "a"))


def test_an_event_loop_waits_for_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server keeps answering everybody else. Eight schemas of 1,290 characters blocked it for 0.3 s each."""
    slow, other, bad = (Specification.create("regex", text) for text in ("slow(", "other(", "bad("))
    go_on, check = threading.Event(), validation_cache._check

    def slowly(specification: Specification, tokens: object) -> None:
        if specification is slow:
            go_on.wait(60)
        check(specification, dict)

    async def ask() -> None:
        await validation_cache.check_beside(slow)  # overdue: the engine will check it
        for specification in (bad, other):  # it keeps no other request from its answer
            with pytest.raises(InvalidSpecError):
                await validation_cache.check_beside(specification)
        go_on.set()
        with pytest.raises(InvalidSpecError):
            await validation_cache.check_beside(slow)

    monkeypatch.setattr(validation_cache, "_check", slowly)
    monkeypatch.setattr(validation_cache, "TIMEOUT_S", 0.5)
    asyncio.run(asyncio.wait_for(ask(), 60))


def test_who_waits_for_a_busy_thread_is_checked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy front end still refuses what is bad: a request waited half a second for thread and check, then passed."""
    check, running = validation_cache._check, threading.Semaphore(0)

    def slowly(specification: Specification, tokens: object) -> None:
        if specification.text.startswith("busy"):
            running.release()
            time.sleep(0.4)
        check(specification, dict)

    async def ask() -> None:
        others = [Specification.create("regex", f"busy{number}") for number in range(8)]
        busy = [asyncio.ensure_future(validation_cache.check_beside(other)) for other in others]
        await asyncio.to_thread(running.acquire)
        began = time.monotonic()
        with pytest.raises(InvalidSpecError):
            await validation_cache.check_beside(Specification.create("regex", "late("))
        assert time.monotonic() - began > 0.8, "nothing was busy"
        await asyncio.gather(*busy)

    monkeypatch.setattr(validation_cache, "_check", slowly)
    monkeypatch.setattr(validation_cache, "TIMEOUT_S", 0.5)
    asyncio.run(asyncio.wait_for(ask(), 60))


def test_large_specifications_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, check = threading.Event(), validation_cache._check

    def slowly(specification: Specification, tokens: object) -> None:
        if specification.size >= validation_cache.LARGE:
            go_on.wait(60)
        check(specification, dict)

    async def ask() -> None:
        large = [Specification.create("regex", f"{number}" * validation_cache.LARGE) for number in range(4)]
        waiting = [asyncio.ensure_future(validation_cache.check_beside(one)) for one in large]
        await asyncio.sleep(0.05)
        with pytest.raises(InvalidSpecError):
            await validation_cache.check_beside(Specification.create("regex", "small("))
        assert not any(one.done() for one in waiting)
        go_on.set()
        await asyncio.gather(*waiting)

    monkeypatch.setattr(validation_cache, "_check", slowly)
    asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_check_that_nobody_waits_for_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is needed for later requests."""
    stopped = []

    def endless(specification: Specification, tokens: object) -> None:
        try:
            while True:
                cancellation.check()
                time.sleep(0.001)
        except cancellation.Cancelled:
            stopped.append(specification)
            raise

    async def ask() -> None:
        for number in range(12):  # more checks than threads
            await validation_cache.check_beside(Specification.create("regex", f"{number}"))

    monkeypatch.setattr(validation_cache, "_check", endless)
    monkeypatch.setattr(validation_cache, "TIMEOUT_S", 0.01)
    asyncio.run(asyncio.wait_for(ask(), 30))
    assert len(stopped) >= 10
