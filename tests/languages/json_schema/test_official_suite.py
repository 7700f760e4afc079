"""The JSON-Schema-Test-Suite (drafts 2020-12 and 7, required and optional/format), as text, compact and spaced.

Keys in any order, because the suite's documents are in any. Where we differ on purpose, it is listed here with the reason;
what is refused must be refused by one of the names listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.errors import InvalidSpec, SpecError
from tests.languages.json_schema.verdicts import Acceptor

SUITE = Path(__file__).resolve().parents[4] / "shared" / "data" / "json-schema-test-suite" / "tests"
DIALECTS = {"draft2020-12": "2020-12", "draft7": "7"}

# (file, what its description begins with): reason
DIFFERENT = {
    ("format", ""): "format is enforced, not an annotation",
    ("type", "integer type matches integers: a float with zero"): "integers are written without a fraction",
    ("optional/float-overflow", "all integers"): "integers are written without an exponent",
    ("optional/content", ""): "contentEncoding and contentMediaType are annotations (Validation §8)",
}
REFUSED = {
    "$ref": "another document",
    "$dynamicRef": "another document",
    "$schema": "is not a dialect",
    "uniqueItems": "finitely many",
    "multipleOf": "",
    "format": "",
}


def cases() -> Iterator[Any]:
    if not SUITE.exists():
        return
    for draft in DIALECTS:
        for path in sorted((SUITE / draft).rglob("*.json")):
            name = path.relative_to(SUITE / draft).with_suffix("").as_posix()
            yield pytest.param(draft, name, path, id=f"{draft}/{name}")


@pytest.mark.skipif(not SUITE.exists(), reason="the suite is not beside this repository")
@pytest.mark.parametrize(("draft", "name", "path"), cases())
def test_suite(draft: str, name: str, path: Path) -> None:
    for case in json.loads(path.read_text()):
        try:
            acceptor = Acceptor(case["schema"], default_dialect=DIALECTS[draft], order="any")
        except InvalidSpec as error:
            assert "nothing satisfies" in error.message, (case["description"], error)
            assert not any(test["valid"] for test in case["tests"])
            continue
        except SpecError as error:
            assert error.keyword in REFUSED, (case["description"], error)
            assert REFUSED[error.keyword] in error.message
            continue
        for test in case["tests"]:
            what = f"{case['description']}: {test['description']}"
            if any(name == file and what.startswith(start) for file, start in DIFFERENT):
                continue
            for separators in ((",", ":"), (", ", ": ")):
                text = json.dumps(test["data"], ensure_ascii=False, separators=separators)
                try:
                    data = text.encode()
                except UnicodeEncodeError:
                    break  # a lone surrogate: no UTF-8 text
                assert acceptor.text(data) == test["valid"], f"{what}: {text}"
