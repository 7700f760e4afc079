"""Hostile expressions: each one leads to an answer or a named error, quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.errors import BudgetExceededError, SpecError
from dotllm.grammar import Grammar
from dotllm.languages.regex import regex_to_dfa, regex_to_expression, regex_to_grammar
from dotllm.languages.regex.parser import MAX_NESTING
from tests.cases import few
from tests.effort import at_most

# CPU seconds. Most expressions need milliseconds, but on a loaded machine these count double, and a garbage collection
# after thousands of tests takes half a second.
LIMIT = 2.0

MANY_OPTIONAL = "".join(f"{chr(0x4E00 + 2 * i)}?" for i in range(6000))
"""Each part can be left out, so every character may come next."""
PATTERNS = [
    "[",
    "\0",
    "^(|.*)$",
    "(" * 30_000 + ")" * 30_000,
    "(" * 30_000,
    ")" * 30_000,
    "(?:" * 30_000,
    "(?=" * 30_000,
    "[" * 30_000,
    "[a&&" * 30_000,
    "[a--[" * 30_000 + "]" * 60_000,
    "\\" * 30_001,
    "a" * 100_000,
    "a?" * 15_000,
    "[a-z]" * 8_000,
    "|" * 30_000,
    "a|" * 15_000,
    "(?>" + "|".join(f"{chr(0x4E00 + 2 * i)}ab" for i in range(4_000)) + ");",
    "(?>" + "".join(f"(?:{chr(0x4E00 + 2 * i)}x)?" for i in range(2_000)) + ");",
    "(a|b)" * 8_000,
    "{" * 30_000,
    "a{1" * 30_000,
    "(a*)*",
    "((a*)*)*",
    "(a|a)*",
    "(a|aa)+$",
    "(a+)+b",
    "(.*)*x" * 10,
    "(x+x+)+y",
    "((a{1,1000}){1,1000}){1,1000}",
    "((a{1,100},){1,100};){1,100}",
    "(a{0,1000000000}b){0,1000000000}",
    "x{1000000000}",
    "x{99999999999999999999}",
    "x{" + "9" * 5000 + "}",
    "(a|b)*a(a|b){20}",
    "(a|b)*a(a|b){1000}",
    ".*a.{30}b",
    "(?=(a|b)*a(a|b){20}).*",
    "(?:(?=.*a.{10})b|a)*",
    "(?!a)" * 1000 + "b",
    r"\b" * 4_000 + "a",
    r"(?:\b|\B)*a",
    r"(?:\ba{1,1000}\b){1,1000}",
    "".join(f"(?=.*{chr(0x61 + i)})" for i in range(20)) + ".*",
    "(^|a)" * 8_000,
    "(^a?$|b)" * 5_000,
    "(?:^|$)*" * 4_000,
    "^" * 30_000 + "a[bc]" * 4_000 + "$" * 30_000,
    "(?:^|a)b" * 8_000,
    r"\p{L}" * 8_000,
    r"(?i)\p{L}[^\p{Lu}]" * 5_000,
    "(?i)" + "é" * 15_000,
    "(?i)" * 15_000,
    "(?#" * 15_000,
    "(?x)" + "#" * 30_000,
    "(?x)" + " a" * 15_000,
    "(?>a|b)" * 1000,
    "(?>[a-z]{1,1000})" * 20,
    "(?:a++b)*" * 2000,
    "(?:(?=a)a)*" * 5_000,
    r"a{2}\bb{2}-" * 5_000,
    "|".join(map(chr, range(0x4E00, 0x9000))),
    "".join(map(chr, range(0x4E00, 0x9000))),
    "[" + "".join(map(chr, range(0x4E00, 0x9000, 2))) + "]",
    "[" + r"\p{L}" * 8_000 + "]",
    "[a" + "--[b]" * 8_000 + "]",
    r"[\p{L}" + r"--\p{Lu}" * 8_000 + "]",
    "x{" + "0" * 5000 + "2}",
    r"\u{" + "0" * 5000 + "41}",
    "\ud800" * 1000,
    "a" * 500_001,
    f"(?>{MANY_OPTIONAL})",
    f"(?>ab?){MANY_OPTIONAL}",
    f"(?>a{{1,3}}{MANY_OPTIONAL})x",
    "".join(f"(?>{chr(0x3400 + i)}b?)?" for i in range(190)) + MANY_OPTIONAL,
    r"\b".join(MANY_OPTIONAL.split("?")),
    rf"\b{MANY_OPTIONAL}(?=a)",
    "".join(f"[{chr(0x100 + i)}-{chr(0x400 + i)}]" for i in range(1000)),
    "(?:" + "|".join(f"[{chr(0x100 + i)}-{chr(0x400 + i)}]x{i}" for i in range(1000)) + ")*",
]

ROUTES: dict[str, Callable[[str], Any]] = {
    "grammar": regex_to_grammar,
    "automaton": lambda pattern: regex_to_dfa(pattern, search=False),
    "bounded search": lambda pattern: regex_to_expression(
        pattern, Grammar(), search=True, dialect="ecma", minimum=2, maximum=1000
    ),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: ascii(pattern[:24]))
def test_an_answer_or_a_named_error_quickly(pattern: str, route: str) -> None:
    with at_most(LIMIT):
        try:
            ROUTES[route](pattern)
        except SpecError as error:
            assert error.keyword
            assert len(str(error)) < 300


def deepest(layer: str) -> str:
    """An expression nested as deeply as allowed."""
    opening, _, closing = layer.partition("@")
    return opening * MAX_NESTING + "a" + closing * MAX_NESTING


@pytest.mark.parametrize(
    "layer", ["(@)", "(?:b|c@)*d", "(?:^|b@$)*", "(?:b@){2,3}", "(?=@)", "(?<!b@)", r"(?:\bb@)+", "(?>b@c)"]
)
def test_deep_nesting_does_not_overflow_the_stack(layer: str) -> None:
    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
            return
        for route in ROUTES.values():
            try:
                route(deepest(layer))
            except SpecError as error:
                assert error.keyword

    deep(100)  # a server's own stack has some depth


def test_one_deeper_is_refused() -> None:
    with pytest.raises(BudgetExceededError, match="a regular expression may not have groups nested deeper than 100"):
        regex_to_grammar("(" + deepest("(@)") + ")")


def test_counted_repetition_is_not_unrolled() -> None:
    for pattern in ("a{0,5000}", "[a-z]{1,200}", "([a-z]{1,200},){1,200}", "((a{1,1000}b){1,1000}c){1,1000}"):
        grammar = regex_to_grammar(pattern)
        assert len(grammar) + len(grammar.children) < 25


@settings(max_examples=few(200))
@given(st.text(alphabet=st.sampled_from(list("ab()[]{}|*+?^$.\\,-&<>=!:1#dwsbpBx")), max_size=12))
def test_any_text_is_an_answer_or_a_named_error(pattern: str) -> None:
    for route in ROUTES.values():
        try:
            route(pattern)
        except SpecError as error:
            assert error.keyword


@pytest.mark.parametrize("pattern", [None, 1, b"a", ["a"], {"a": 1}])
def test_what_is_no_text_is_refused(pattern: Any) -> None:
    with pytest.raises(SpecError, match="must be a string"):
        regex_to_grammar(pattern)
