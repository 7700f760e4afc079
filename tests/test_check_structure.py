"""The loops that `tools.check_structure` finds: those that a specification can lengthen and that nothing stops."""

from __future__ import annotations

import ast

import pytest

from tools.check_structure import loops_without_end

ENDLESS = ("while todo:\n    todo.pop()", "for x in xs:\n    xs.append(x)", "for x in a.xs:\n    a.xs += [x]")
STOPPED = (
    "while todo:\n    cancellation.check()",
    "while todo:\n    self.algebra.spend(1)",
    "while todo:\n    out = product(todo.pop(), budget)",
    "while todo:\n    if len(todo) > MOST:\n        raise BudgetExceededError('too many')",
    "while todo:  # bounded: by the text\n    todo.pop()",
    "for x in xs:\n    ys.append(x)",
    "@kernel('void()')\ndef f():\n    while todo:\n        todo.pop()",
)


@pytest.mark.parametrize("source", ENDLESS)
def test_endless(source: str) -> None:
    assert [loop.lineno for loop in loops_without_end(ast.parse(source), source.splitlines())] == [1]


@pytest.mark.parametrize("source", STOPPED)
def test_stopped(source: str) -> None:
    assert not [*loops_without_end(ast.parse(source), source.splitlines())]


def test_a_comment_gives_a_reason() -> None:
    source = "while todo:  # bounded: by\n    todo.pop()"
    assert [*loops_without_end(ast.parse(source), source.splitlines())]
