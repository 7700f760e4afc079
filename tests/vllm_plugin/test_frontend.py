"""Verdicts of the front end are remembered, refusals without their tracebacks, and their number is bounded."""

from __future__ import annotations

import pytest

from dotllm.compilation import Specification
from dotllm.errors import InvalidSpec, SpecError, Unsupported
from dotllm.vllm_plugin import frontend


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "_verdicts", frontend._Verdicts())


def test_good_ones_pass_and_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Specification] = []
    judge = frontend._judge
    monkeypatch.setattr(frontend, "_judge", lambda spec, tokens: (judged.append(spec), judge(spec, tokens)))
    for _ in range(3):
        frontend.check(Specification.create("regex", "[0-9]{3}"))
        frontend.check(Specification.create("json_schema", '{"type": "integer"}'))
        frontend.check(Specification.create("json_object", ""))
        frontend.check(Specification.create("choice", '["a"]'))
    assert len(judged) == 4


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("regex", "(", InvalidSpec),
        ("regex", r"(a)\1", Unsupported),
        ("json_schema", '{"type": 1}', InvalidSpec),
        ("json_schema", "{", InvalidSpec),
        ("json_schema", '{"type": "array", "uniqueItems": true}', Unsupported),
    ],
)
def test_refusals_are_the_same_the_second_time(kind: str, text: str, error: type[SpecError]) -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(error) as refusal:
            frontend.check(Specification.create(kind, text))
        caught.append(refusal.value)
    first, second = caught
    assert first is not second
    assert (str(first), first.pointer, first.keyword) == (str(second), second.pointer, second.keyword)


def test_options_are_part_of_the_question() -> None:
    frontend.check(Specification.create("json_schema", "{}"))
    with pytest.raises(SpecError):
        frontend.check(Specification.create("json_schema", "{}", {"whitespace_pattern": "("}))


def test_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "REMEMBERED", 10)
    for number in range(30):
        frontend.check(Specification.create("choice", f'["{number}"]'))
    assert len(frontend._verdicts._known) == 10


def test_recursion_of_a_front_end_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(frontend, "_judge", too_deep)
    with pytest.raises(SpecError, match="nested"):
        frontend.check(Specification.create("regex", "a"))
