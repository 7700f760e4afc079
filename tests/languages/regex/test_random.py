"""Random regular expressions against Python's `re` and the `regex` package, text by text."""

from __future__ import annotations

import itertools
import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.automata.dfa import Dfa, dfa_to_grammar
from dotllm.errors import InvalidSpecError, UnsupportedError
from dotllm.grammar import Grammar
from dotllm.languages.regex import regex_to_dfa, regex_to_expression, regex_to_grammar
from dotllm.languages.regex.build import Writing
from tests.cases import few
from tests.grammar.reference import accepts

LETTERS = "ab-"
TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product(LETTERS, repeat=n)]
SHORT = [text for text in TEXTS if len(text) < 4]

characters = st.sampled_from(["a", "b", "-", "[ab]", "[^a]", ".", r"\w", r"\W", "[b-]", "(?i:A)"])
quantifiers = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{0,2}?", "{2,}", "{0}", "{0,3}"])


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner, quantifiers).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


plain = st.recursive(st.one_of(characters, st.just("")), combined, max_leaves=8)
anchors = st.sampled_from(["^", r"\Z", r"\b", r"\B"])
# `regex` is the judge here: `re` has no look-behind of variable width.
assertions = st.recursive(
    st.one_of(characters, anchors),
    lambda inner: st.one_of(
        combined(inner),
        st.tuples(st.sampled_from(["(?={})", "(?!{})", "(?<={})", "(?<!{})"]), inner).map(lambda t: t[0].format(t[1])),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=7,
)

possessive = st.sampled_from(["*+", "++", "?+", "{1,2}+", "{2}+"])
atomic = st.recursive(
    st.one_of(characters, st.just("")),
    lambda inner: st.one_of(
        combined(inner),
        inner.map("(?>{})".format),
        st.tuples(inner, possessive).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map("(?>{0[0]}|{0[1]})".format),
    ),
    max_leaves=8,
)


def judged(pattern: str, search: bool, texts: list[str]) -> list[str]:
    """The texts that ``pattern`` matches."""
    compiled = regex.compile(pattern, regex.V0 | regex.ASCII)
    match = compiled.search if search else compiled.fullmatch
    return [text for text in texts if match(text)]


@settings(max_examples=few(200))
@given(plain, st.booleans())
def test_plain_expressions(pattern: str, search: bool) -> None:
    compiled = re.compile(pattern, re.ASCII)
    match = compiled.search if search else compiled.fullmatch
    expected = [text for text in TEXTS if match(text)]
    dfa = regex_to_dfa(pattern, search=search)
    assert [text for text in TEXTS if dfa.accepts(text)] == expected
    check_grammar(pattern, search, [text for text in expected if text in SHORT])


@settings(max_examples=few(1000))
@given(atomic, st.booleans())
def test_atomic_groups_that_change_nothing(pattern: str, search: bool) -> None:
    try:
        dfa = regex_to_dfa(pattern, search=search)
    except UnsupportedError:
        return
    compiled = re.compile(pattern, re.ASCII)
    match = compiled.search if search else compiled.fullmatch
    assert [text for text in TEXTS if dfa.accepts(text)] == [text for text in TEXTS if match(text)]


@settings(max_examples=few(300))
@given(assertions, st.booleans())
def test_expressions_with_assertions(pattern: str, search: bool) -> None:
    expected = judged(pattern, search, TEXTS)
    dfa = regex_to_dfa(pattern, search=search)
    assert [text for text in TEXTS if dfa.accepts(text)] == expected
    check_grammar(pattern, search, [text for text in expected if text in SHORT])


def check_grammar(pattern: str, search: bool, expected: list[str]) -> None:
    """The grammar, of which only parts are compiled as automata, has the same language."""
    try:
        grammar = regex_to_grammar(pattern, search=search)
    except InvalidSpecError:
        assert not expected
        return
    assert [text for text in SHORT if accepts(grammar, text.encode())] == expected


@settings(max_examples=few(300))
@given(plain, st.booleans(), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 5)))
def test_bounds_on_the_length(pattern: str, search: bool, minimum: int, maximum: int | None) -> None:
    dfa = regex_to_dfa(pattern, search=search) & Dfa.length(minimum, maximum)
    grammar = Grammar()
    grammar.start = regex_to_expression(pattern, grammar, search=search, minimum=minimum, maximum=maximum)
    assert [text for text in SHORT if accepts(grammar, text.encode())] == [text for text in SHORT if dfa.accepts(text)]


@settings(max_examples=few(100))
@given(assertions)
def test_spelling_of_characters_is_the_callers(pattern: str) -> None:
    """With every character doubled, both routes give the language of the doubled texts."""
    dfa = regex_to_dfa(pattern, search=False)
    for as_automaton in (True, False):
        grammar = Grammar()

        def doubled(charset, grammar=grammar):
            return grammar.alt(
                [grammar.literal(char * 2) for char in LETTERS if ord(char) in charset] or [grammar.never()]
            )

        if as_automaton:
            grammar.start = dfa_to_grammar(dfa, grammar, doubled)
        else:
            writing = Writing(
                doubled,
                lambda text, grammar=grammar: grammar.literal("".join(char * 2 for char in text)),
                lambda dfa, low=0, high=None, grammar=grammar: dfa_to_grammar(dfa, grammar, doubled),
            )
            grammar.start = regex_to_expression(pattern, grammar, search=False, writing=writing)
        for text in SHORT:
            assert accepts(grammar, "".join(char * 2 for char in text).encode()) == dfa.accepts(text)


@pytest.mark.parametrize("text", ["a" * 30, "a" * 30 + "!"])
def test_what_backtracking_cannot_do(text: str) -> None:
    """Patterns that take `re` exponential time."""
    for pattern in ("(a+)+", "(a|a)*", "(a|aa)+", "(.*a){12}", "(a*)*"):
        assert regex_to_dfa(pattern, search=False).accepts(text) == text.endswith("a")
