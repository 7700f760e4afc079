"""The corpus of schemas (tests/corpus/json_schema): verdicts on documents with keys in any order; what must be refused,
how, and with which place. Each case once failed, except those of keywords.json, which take every way through the
compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dotllm.errors import SpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.languages.json_schema.verdicts import Acceptor

CORPUS = Path(__file__).parents[2] / "corpus" / "json_schema"
VERDICTS = [case for name in ("verdicts", "keywords") for case in json.loads((CORPUS / f"{name}.json").read_text())]
REFUSED = json.loads((CORPUS / "refused.json").read_text())


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["what"])
def test_verdicts(case: dict[str, Any]) -> None:
    acceptor = Acceptor(case["schema"], order="any")
    assert [document for document in case["valid"] if not acceptor.value(document)] == []
    assert [document for document in case["invalid"] if acceptor.value(document)] == []


def outcome(schema: Any) -> tuple[str, str, str]:
    """The error's name, keyword and pointer."""
    with pytest.raises(SpecError) as caught:
        json_schema_to_grammar(schema)
    return type(caught.value).__name__, caught.value.keyword, caught.value.place


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["text"][:60])
def test_refused(case: dict[str, str]) -> None:
    assert outcome(case["text"]) == (case["error"], case["keyword"], case["pointer"])


@pytest.mark.parametrize("digits", [400, 1_999])
def test_integers_larger_than_a_float_are_bounds(digits: int) -> None:
    for keyword in ("minimum", "maximum", "maxLength", "const"):
        json_schema_to_grammar({keyword: 10**digits})


def test_multiples_of_a_large_integer() -> None:
    json_schema_to_grammar({"multipleOf": 10**400})


@pytest.mark.parametrize("digits", [2_100, 5_000])
def test_integers_that_python_would_not_write(digits: int) -> None:
    for keyword in ("minimum", "multipleOf", "maxItems", "const"):
        assert outcome({keyword: 10**digits}) == ("BudgetExceededError", keyword, f"/{keyword}")
    assert outcome(f'{{"maximum": 1{"0" * 5_000}}}') == ("BudgetExceededError", "number", "/maximum")
    assert outcome({"enum": [1, 10**digits]}) == ("BudgetExceededError", "enum", "/enum")
