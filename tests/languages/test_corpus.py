"""Every grammar of the corpus: the oracle judges its texts, before and after `prepare`."""

from __future__ import annotations

import pytest

from dotllm.grammar.analysis import analyse
from dotllm.grammar.transform import prepare
from dotllm.languages.cfg import detect_dialect, grammar_to_grammar
from tests.grammar.reference import accepts
from tests.languages.grammar_cases import Case, cases


def test_the_corpus_is_large_enough() -> None:
    assert len(cases()) >= 60
    assert all(case.yes and case.no for case in cases())


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_texts(case: Case) -> None:
    assert detect_dialect(case.grammar) == case.notation
    grammar = grammar_to_grammar(case.grammar)
    prepared = prepare(grammar)
    assert analyse(prepared).reasons == 0
    for text in case.yes:
        assert accepts(grammar, text.encode()), text
        assert accepts(prepared, text.encode()), text
    for text in case.no:
        assert not accepts(grammar, text.encode()), text
        assert not accepts(prepared, text.encode()), text
