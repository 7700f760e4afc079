"""Verdicts of the front end are remembered, refusals without their tracebacks, and their number is bounded."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dotllm.compilation import Specification
from dotllm.errors import InvalidSpec, SpecError, Unsupported
from dotllm.vllm_plugin import verdicts


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_memory", verdicts._Memory())
    monkeypatch.setattr(verdicts, "_aside", verdicts._Aside())


def test_good_ones_pass_and_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Specification] = []
    judge = verdicts._judge
    monkeypatch.setattr(verdicts, "_judge", lambda spec, tokens: (judged.append(spec), judge(spec, tokens)))
    for _ in range(3):
        verdicts.check(Specification.create("regex", "[0-9]{3}"))
        verdicts.check(Specification.create("json_schema", '{"type": "integer"}'))
        verdicts.check(Specification.create("json_object", ""))
        verdicts.check(Specification.create("choice", '["a"]'))
        verdicts.check(Specification.create("grammar", 'start: "a"'))
    assert len(judged) == 5


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("regex", "(", InvalidSpec),
        ("regex", r"(a)\1", Unsupported),
        ("json_schema", '{"type": 1}', InvalidSpec),
        ("json_schema", "{", InvalidSpec),
        ("json_schema", '{"type": "array", "contains": {"type": "null"}, "uniqueItems": true}', Unsupported),
        ("choice", "[]", InvalidSpec),
        ("choice", '["a", ""]', InvalidSpec),
        ("choice", '["\\ud800"]', InvalidSpec),
        ("grammar", "start: nowhere", InvalidSpec),
        ("structural_tag", '{"format": {"type": "nonsense"}}', SpecError),
    ],
)
def test_refusals_are_the_same_the_second_time(kind: str, text: str, error: type[SpecError]) -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(error) as refusal:
            verdicts.check(Specification.create(kind, text))
        caught.append(refusal.value)
    first, second = caught
    assert first is not second
    assert (str(first), first.pointer, first.keyword) == (str(second), second.pointer, second.keyword)


def test_options_are_part_of_the_question() -> None:
    verdicts.check(Specification.create("json_schema", "{}"))
    with pytest.raises(SpecError):
        verdicts.check(Specification.create("json_schema", "{}", {"whitespace_pattern": "("}))


def test_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "REMEMBERED", 10)
    for number in range(30):
        verdicts.check(Specification.create("choice", f'["{number}"]'))
    assert len(verdicts._memory._known) == 10


def test_recursion_of_a_front_end_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(verdicts, "_judge", too_deep)
    with pytest.raises(SpecError, match="nested"):
        verdicts.check(Specification.create("regex", "a"))


def test_an_event_loop_waits_for_quick_verdicts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its server answers everybody else: 15 KB of a schema kept one from it for a minute and a half."""
    slow, other, bad = (Specification.create("regex", text) for text in ("slow(", "other(", "bad("))
    go_on, judge = threading.Event(), verdicts._judge

    def slowly(specification: Specification, tokens: object) -> None:
        if specification is slow:
            go_on.wait(60)
        judge(specification, dict)

    async def ask(specification: Specification) -> None:
        verdicts.check(specification)

    monkeypatch.setattr(verdicts, "_judge", slowly)
    monkeypatch.setattr(verdicts, "PATIENCE", 10.0)
    with pytest.raises(InvalidSpec):
        asyncio.run(ask(bad))
    monkeypatch.setattr(verdicts, "PATIENCE", 0.01)
    asyncio.run(ask(slow))
    asyncio.run(ask(other))  # no second one beside it
    assert not verdicts.is_known(slow) and not verdicts.is_known(other)
    with pytest.raises(InvalidSpec):
        verdicts.check(other)  # whoever has the time waits
    go_on.set()
    deadline = time.monotonic() + 60
    while not verdicts.is_known(slow) and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(InvalidSpec):
        asyncio.run(ask(slow))
