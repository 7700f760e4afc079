"""Verdicts of the front end are remembered, refusals without their tracebacks, and their number is bounded."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dotllm.compilation import Specification
from dotllm.errors import InvalidSpec, SpecError, Unsupported
from dotllm.vllm_plugin.frontend import verdicts
from dotllm.vllm_plugin.frontend.verdict_pool import VerdictPool


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_memory", verdicts._Memory())
    monkeypatch.setattr(verdicts, "_pool", VerdictPool())


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


def test_an_event_loop_waits_for_no_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its server answers everybody else: eight schemas of 1,290 characters kept one from it for 0.3 s each."""
    slow, other, bad = (Specification.create("regex", text) for text in ("slow(", "other(", "bad("))
    go_on, judge = threading.Event(), verdicts._judge

    def slowly(specification: Specification, tokens: object) -> None:
        if specification is slow:
            go_on.wait(60)
        judge(specification, dict)

    async def ask() -> None:
        overdue = [asyncio.create_task(verdicts.settle(slow, dict, None)) for _ in range(3)]
        assert not await verdicts.settle(slow, dict, 0.01)
        for specification in (bad, other):  # one that is overdue keeps nobody else from a verdict
            with pytest.raises(InvalidSpec):
                await verdicts.settle(specification, dict, 60)
        assert not verdicts.is_known(slow) and not any(task.done() for task in overdue)
        go_on.set()
        for found in await asyncio.gather(*overdue, return_exceptions=True):
            assert isinstance(found, InvalidSpec)
        with pytest.raises(InvalidSpec):
            verdicts.check_known(slow)

    monkeypatch.setattr(verdicts, "_judge", slowly)
    asyncio.run(asyncio.wait_for(ask(), 60))
