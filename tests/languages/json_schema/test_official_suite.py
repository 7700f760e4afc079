"""The JSON-Schema-Test-Suite: no verdict is wrong, and ``docs/json-schema.md`` reports the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.languages.json_schema.official_suite import SUITE, files, judge
from tools import json_schema_report

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "json-schema.md"

pytestmark = pytest.mark.skipif(not SUITE.exists(), reason="the suite is not next to this repository")


@pytest.mark.parametrize(("draft", "file"), files())
def test_suite(draft: str, file: str) -> None:
    assert judge(draft, file).wrong == []


def test_the_document_says_what_was_found() -> None:
    found = json_schema_report.document()
    assert found == DOCUMENT.read_text(), "python tools/json_schema_report.py writes it anew"
