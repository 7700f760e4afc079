"""Work that ends when nobody waits for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dotllm.automata.lowering import lower
from dotllm.cancellation import Cancelled, cancellable, check
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.regex import regex_to_grammar
from dotllm.languages.structural_tag.build import structural_tag_to_grammar


class After(threading.Event):
    """An event that is set after ``times`` queries."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def is_set(self) -> bool:
        self.times -= 1
        return self.times < 0


def patterns(count: int) -> dict[str, Any]:
    return {"properties": {f"p{i}": {"type": "string", "pattern": f"^(?!.*a.{{5}}b{i})"} for i in range(count)}}


def objects(count: int) -> dict[str, Any]:
    one = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
    return {"allOf": [{"anyOf": [{**one, "title": str(i)}, {"required": [f"b{i}"]}]} for i in range(count)]}


def tags(count: int) -> dict[str, Any]:
    elements = [{"type": "const_string", "value": str(i)} for i in range(count)]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}


def literal() -> Grammar:
    grammar = Grammar()
    grammar.start = grammar.literal(b"a")
    return grammar


@pytest.mark.parametrize(
    "work",
    [
        lambda: json_schema_to_grammar(json.dumps(patterns(20))),
        lambda: json_schema_to_grammar(json.dumps(objects(5))),
        lambda: structural_tag_to_grammar(tags(20)),
        lambda: grammar_to_grammar("start: " + " ".join(f"T{i}" for i in range(20)) + "".join(
            f"\nT{i}: /[a-z]+{i}/ & /x.*{i}/" for i in range(20))),
        lambda: regex_to_grammar("".join(f"(?=.*a{i}.*b)" for i in range(3)) + ".*"),
    ],
    ids=["patterns", "combinations", "structural tag", "lark", "regex"],
)  # fmt: skip
def test_a_specification_is_given_up_soon(work: Callable[[], Grammar]) -> None:
    assert work(), "taken"
    for times in (0, 4):
        with cancellable(After(times)), pytest.raises(Cancelled):
            work()
    assert work(), "and again"


@pytest.mark.parametrize("stage", [prepare, lower])
def test_stages_do_not_begin(stage: Callable[[Grammar], Any]) -> None:
    with cancellable(After(0)), pytest.raises(Cancelled):
        stage(literal())
    assert stage(literal())


def test_only_on_this_thread_and_only_within() -> None:
    over = threading.Event()
    over.set()
    with cancellable(over):
        other = threading.Thread(target=check)
        other.start()
        other.join()
        with cancellable(threading.Event()):
            check()
        with pytest.raises(Cancelled):
            check()
    check()
