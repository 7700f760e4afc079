"""choice: precisely the given strings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.errors import InvalidSpecError
from dotllm.languages.choice import choice_to_grammar
from tests.cases import few
from tests.effort import at_most
from tests.grammar.reference import Recogniser, accepts


@pytest.mark.parametrize(
    ("choices", "others"),
    [
        (["yes", "no"], ["", "y", "yesno", "Yes", " yes"]),
        (["a", "ab", "abc"], ["", "b", "abcd"]),
        (["only"], ["onl", "onlyy"]),
        (["same", "same"], ["samesame"]),
        (["naïve", "naive", "😀", "日本"], ["nai", "日", "\u0000"]),
        (['"quoted"', "a\nb", "\x00", " "], ["quoted", "a", "\n"]),
        ([".*", "(a|b)"], ["x", "a"]),
        (["", "a"], ["aa", " "]),
        ([""], ["a", " "]),
    ],
)
def test_exactly_the_choices(choices: list[str], others: list[str]) -> None:
    grammar = choice_to_grammar(choices)
    assert all(accepts(grammar, choice.encode()) for choice in choices)
    assert not any(accepts(grammar, other.encode()) for other in others)


@settings(max_examples=few(100))
@given(st.lists(st.text("ab\u00e9", max_size=4), min_size=1, max_size=6), st.text("ab\u00e9", max_size=5))
def test_any_strings(choices: list[str], text: str) -> None:
    grammar = choice_to_grammar(choices)
    assert accepts(grammar, text.encode()) == (text in choices)
    assert all(accepts(grammar, choice.encode()) for choice in choices)


def test_a_prefix_may_go_on_or_stop() -> None:
    recogniser = Recogniser(choice_to_grammar(["ab", "abc"]))
    assert recogniser.feed(ord("a")) and not recogniser.can_finish
    assert recogniser.feed(ord("b")) and recogniser.can_finish
    assert recogniser.feed(ord("c")) and recogniser.can_finish
    assert not recogniser.feed(ord("c"))


def test_a_hundred_thousand_choices() -> None:
    choices = [f"item-{i:06d}" for i in range(100_000)]
    with at_most(2):
        grammar = choice_to_grammar(choices)
    assert len(grammar) < 10
    assert grammar.literal_sets == [[choice.encode() for choice in choices]]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([], "empty list"),
        (["a", 1], "a string, not int (at /1)"),
        ([None], "a string, not NoneType (at /0)"),
        (["a", "\ud800"], "lone surrogate, which no UTF-8 text has (at /1)"),
        ("abc", "a list of strings, not str"),
        (b"abc", "a list of strings, not bytes"),
        (None, "a list of strings, not NoneType"),
        ({"a": 1}, "a list of strings, not dict"),
        (3, "a list of strings, not int"),
    ],
)
def test_what_is_no_choice_is_refused_by_name(choices: Any, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=re.escape(message)) as caught:
        choice_to_grammar(choices)
    assert caught.value.keyword == "choice"
