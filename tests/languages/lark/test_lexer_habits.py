"""Warnings of what only a lexer heeds in a terminal."""

from __future__ import annotations

import time

import pytest

from dotllm.compilation import Kind, Specification, spec_warnings
from dotllm.errors import InvalidSpecError
from dotllm.languages.lark.build import lark_to_grammar
from dotllm.languages.lark.lexer_habits import MAY_HAVE_NO_EFFECT, without_effect

EDGES = {
    r"\bif\b": r"\b", r"(a|b\b)": r"\b", r"(?=\d)\w+\b": r"\b", r"(?i:ab)\B": r"\B",
    r"(?:\b(?i:if|then)|x)y": r"\b", r"a|(b|c\B)+": r"\B", r"(?i)\bif": r"\b",
    r"[0-9]+(?!\.)": "(?!…)", r"(?:a(?!b))": "(?!…)", r"(?<!x)a": "(?<!…)", r"(?<=x)a|b": "(?<=…)",
    r"^\bx": r"\b", r"x\b$": r"\b", r"(?#c)\bx": r"\b", "(?x) a \\b # end": r"\b",
}  # fmt: skip
LAZY = (
    r"[+-]??[0-9]+?", r"(?:[a-z]*?;)+?", r"(?:x|ab*?)*?c|b+?",
    r"\[.*?\]", r"/\*(.|\n)*?\*/", "a{2,3}?", ".*?", "[^]a]+?", "x?" * 20_000 + "y??",
)  # fmt: skip
NOTHING = (
    r"(?:a(?!b))c?", r"a(?:\bthen|x)y", r"(a|b\b)c", r"x(a|\b(?:b|c))", "a(?:b|(?<=a)c)", "{a?}",
    r"(?!if\b)[a-z]+", r"a(?<!xa)", r"a\bb", r"(?=ab)ab", r"(a(?=b)b)", r"[*+?}]\?", r"\\b", r"[\b?]",
    r"(?P<n>a)", r'"[^"]*?"', "a*?b", "(?:a|b)+", "a{2,3}",
    "[+-]??[0-9]+", r"-??[0-9]+(?:\.[0-9]+)?", "[a-z]*?[0-9]*;+", r"(?:[a-z]*?;)+", "(?:a{2}?)+", r"//[^\n]*?\n+",
)  # fmt: skip


@pytest.mark.parametrize("pattern", EDGES)
def test_an_assertion_that_looks_outwards(pattern: str) -> None:
    assert MAY_HAVE_NO_EFFECT.search(pattern) and without_effect(pattern).startswith(f"{EDGES[pattern]} at the edge")


@pytest.mark.parametrize("pattern", LAZY, ids=lambda pattern: pattern[:20])
def test_a_lazy_quantifier_after_which_a_match_goes_on(pattern: str) -> None:
    """Or might: deciding it may take too much work."""
    assert MAY_HAVE_NO_EFFECT.search(pattern) and without_effect(pattern).startswith("a lazy quantifier")


@pytest.mark.parametrize("pattern", NOTHING)
def test_nothing(pattern: str) -> None:
    assert without_effect(pattern) == ""


LONG = {
    "alternatives": "a(" + r"\bx|" * 100_000 + "y)",
    "groups": "(" * 100_000 + r"a\ba" + ")" * 100_000,
    "an open class": "[" * 100_000 + r"\b",
    "an open count": "{" + "1" * 100_000 + r"\ba",
    "nested quantifiers": "(?:" * 90 + "a" + "b*?)*?" * 90 + "c",
}


@pytest.mark.parametrize("pattern", LONG.values(), ids=LONG)
def test_long_expressions_take_linear_time(pattern: str) -> None:
    """They took minutes, or hours, before the expression itself was read (or refused)."""
    before = time.process_time()
    assert without_effect(pattern) == ""
    assert time.process_time() - before < 10


def test_many_optional_parts_after_lazy_ones_are_not_examined() -> None:
    many = "".join(f"{chr(0x4E00 + 2 * i)}??" for i in range(9_000))
    before = time.process_time()
    assert without_effect(f"{many}b").startswith("a lazy quantifier")
    assert time.process_time() - before < 10


def test_a_terminal_that_looks_for_text_beyond_it_is_refused() -> None:
    """Lark's lexer would see that text; here no text matches the terminal. A part that matches is only warned of."""
    for pattern in ("a(?=b)", "(?<=b)a", "a(?=b)c?(?=b)", "(a|b)(?=c)(?!d)", "(?i)a(?=b)"):
        with pytest.raises(InvalidSpecError, match="looks beyond it; write what must come there") as refusal:
            lark_to_grammar(f'start: "x" | T\nT: "y"\n  | /{pattern}/')
        assert refusal.value.code == "unsatisfiable" and refusal.value.place == "line 3, column 5"
    for pattern in ("a(?=b)|b", "a(?=b|$)", "a(?!b)", "a(?=b)b", r"a\b", "(?!)"):
        lark_to_grammar(f'start: "x" | T\nT: "y"\n  | /{pattern}/')


def test_white_space_in_verbose_expressions() -> None:
    assert without_effect("(?x)a (?= b ) ").startswith("(?=…)") and not without_effect("a (?= b ) ")


def test_the_warning_has_its_place() -> None:
    text = "start: IF ID\nIF: /\\bif\\b/\nID: /[a-z]+?/\n"
    at_edge, lazy = spec_warnings.texts(Specification.create(Kind.GRAMMAR, text))
    assert at_edge.startswith(r"\b at the edge") and at_edge.endswith("(at line 2, column 5)")
    assert lazy.startswith("a lazy quantifier") and lazy.endswith("(at line 3, column 5)")
    for right in ('start: "if" ID\nID: /[a-z]+/\n', "start: t\nt[lazy]: /.*?;/\n", 'start: t\nt[suffix=";"]: /.*?/\n'):
        assert spec_warnings.texts(Specification.create(Kind.GRAMMAR, right)) == ()
