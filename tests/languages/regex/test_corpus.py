"""The corpus of regular expressions (tests/corpus/regex) in every layer: automaton, grammar, machine.

A case says which texts are accepted and rejected, or with which error, keyword and offset the expression is refused.
The expectations themselves are checked against `re` (with ``"re": "regex"`` or ``"V1"``, against version 0 or 1 of the
`regex` package), except in cases with ``"re": false``, whose ``note`` says how dotllm differs.
"""

from __future__ import annotations

import json
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import regex

from dotllm import Index
from dotllm.automata.dfa import dfa_to_grammar
from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError
from dotllm.grammar import Grammar
from dotllm.languages.regex import regex_to_dfa, regex_to_grammar
from dotllm.vocabulary import Vocabulary
from tests.grammar.reference import accepts

CORPUS = Path(__file__).parents[2] / "corpus" / "regex"
CASES = [
    pytest.param(case, id=f"{path.stem}-{i}")
    for path in sorted(CORPUS.glob("*.json"))
    for i, case in enumerate(json.loads(path.read_text())["cases"])
]
MATCHED = [case for case in CASES if "accepts" in case.values[0]]
REFUSED = [case for case in CASES if "refused" in case.values[0]]


def options(case: dict[str, Any]) -> dict[str, Any]:
    return {"search": case.get("search", False), "dialect": case.get("dialect", "python")}


def texts(case: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(text, True) for text in case["accepts"]] + [(text, False) for text in case["rejects"]]


def short_texts(case: dict[str, Any]) -> list[tuple[str, bool]]:
    """The short texts, for the reference recogniser, which takes milliseconds a byte."""
    return [(text, expected) for text, expected in texts(case) if len(text) < 12]


def utf8(text: str) -> bytes:
    """UTF-8, with lone surrogates as in WTF-8, which no grammar may accept."""
    return text.encode("utf-8", "surrogatepass")


@cache
def bytes_as_tokens() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=[256])


# Repetitions that an automaton would have to unroll.
TOO_LARGE_UNROLLED = ("((a{1,1000}){1,1000}){1,1000}", "x{1000000000}")


@pytest.mark.parametrize("case", MATCHED)
def test_automaton(case: dict[str, Any]) -> None:
    """The automaton, and the grammar made from it."""
    if case["pattern"] in TOO_LARGE_UNROLLED:
        with pytest.raises(BudgetExceededError):
            regex_to_dfa(case["pattern"], **options(case))
        return
    dfa = regex_to_dfa(case["pattern"], **options(case))
    assert [(text, dfa.accepts(text)) for text, _ in texts(case)] == texts(case)
    grammar = Grammar()
    grammar.start = dfa_to_grammar(dfa, grammar, grammar.chars)
    assert [(text, accepts(grammar, utf8(text))) for text, _ in short_texts(case)] == short_texts(case)


@pytest.mark.parametrize("case", MATCHED)
def test_grammar(case: dict[str, Any]) -> None:
    """The grammar made from the syntax tree, read by the reference recogniser and by the machine."""
    try:
        grammar = regex_to_grammar(case["pattern"], **options(case))
    except InvalidSpecError as error:
        assert "no text matches" in str(error)
        assert regex_to_dfa(case["pattern"], **options(case)).is_empty()
        return
    assert [(text, accepts(grammar, utf8(text))) for text, _ in short_texts(case)] == short_texts(case)
    try:
        index = Index.from_grammar_object(grammar, bytes_as_tokens())
    except InvalidSpecError:
        assert not case["accepts"]
        return
    for text, expected in texts(case):
        guide = index.guide()
        assert (all(map(guide.advance, utf8(text))) and guide.can_finish) == expected, text


@pytest.mark.parametrize("case", MATCHED)
def test_expectation(case: dict[str, Any]) -> None:
    judge = case.get("re", "re")
    if judge is False or case.get("dialect") == "ecma":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        compiled: Any
        if judge == "re":
            compiled = re.compile(case["pattern"], re.ASCII if case.get("flags") == "a" else 0)
        else:
            compiled = regex.compile(case["pattern"], regex.V1 if judge == "V1" else regex.V0)
    match = compiled.search if case.get("search") else compiled.fullmatch
    found = [(text, match(text) is not None) for text, _ in texts(case)]
    assert [pair for pair in found if not _quirk(case["pattern"], pair[0])] == [
        pair for pair in texts(case) if not _quirk(case["pattern"], pair[0])
    ]


def _quirk(pattern: str, text: str) -> bool:
    """In `re`, ``$`` also matches before a final line feed, and a str may hold lone surrogates; both are documented."""
    return ("$" in pattern and text.endswith("\n")) or any("\ud800" <= char <= "\udfff" for char in text)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        regex_to_grammar(case["pattern"], **options(case))
    error = caught.value
    assert (type(error).__name__, error.keyword) == (case["refused"], case["keyword"])
    if "offset" in case:
        assert error.place == f"offset {case['offset']}"
