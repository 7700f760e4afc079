"""The verdicts on every case of the JSON-Schema-Test-Suite (drafts 2020-12 and 7, required and optional), as text.

Cases are judged once per process: the test of the suite and the report (``tools/json_schema_report.py``) use the same
verdicts. Keys may be in any order, as in the suite's documents. Documents are written both compactly and spaced.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from dotllm.errors import InvalidSpecError, SpecError
from tests.conftest import SHARED_DATA
from tests.languages.json_schema.verdicts import Acceptor

SUITE = SHARED_DATA / "json-schema-test-suite" / "tests"
DIALECTS = {"draft2020-12": "2020-12", "draft7": "7"}

# (file, the beginning of a description): why dotllm differs on purpose
DIFFERENT = {
    ("format", ""): "format is enforced, not an annotation",
    ("type", "integer type matches integers: a float with zero"): "integers are written without a fraction",
    ("optional/float-overflow", "all integers"): "integers are written without an exponent",
    ("optional/content", ""): "contentEncoding and contentMediaType are annotations (Validation §8)",
    ("optional/format/hostname", ""): "labels in Punycode are not allowed: which of them are valid is not regular",
    ("optional/format/ecmascript-regex", "ECMA 262 named groups"): "references to named groups are not allowed",
}
_UPPER = "T and Z are upper case, as RFC 3339 §5.6 asks of those who write"
_LEAP = "second 60 is not written: Python's and JavaScript's readers refuse it"
DIFFERENT |= {
    ("optional/format/date-time", "validation of date-time strings: a valid date-time with a leap second"): _LEAP,
    ("optional/format/date-time", "validation of date-time strings: case-insensitive T and Z"): _UPPER,
    ("optional/format/time", "validation of time strings: a valid time string with case-insensitive Z"): _UPPER,
    ("optional/format/time", "validation of time strings: a valid time string with leap second"): _LEAP,
    ("optional/format/time", "validation of time strings: valid leap second"): _LEAP,
    ("optional/format/duration", "validation of duration strings: a component with many digits"): (
        "components have at most six or eight digits, which readers take"
    ),
}
# keyword: what the message of a refusal must say
REFUSED = {
    "$ref": "another document",
    "$dynamicRef": "another document",
    "$schema": "is not a dialect",
    "uniqueItems": "uniqueItems cannot be enforced",
    "multipleOf": "",
    "format": "",
}


@dataclass
class Verdicts:
    """For one file: how many tests have the right verdict, and the reasons for the others; ``wrong`` must be empty."""

    exact: int = 0
    different: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def files() -> Iterator[tuple[str, str]]:
    """(draft, file) for all files; none if the suite is not next to this repository."""
    for draft in DIALECTS:
        for path in sorted((SUITE / draft).rglob("*.json")):
            yield draft, path.relative_to(SUITE / draft).with_suffix("").as_posix()


@cache
def judge(draft: str, file: str) -> Verdicts:
    """The verdicts on one file."""
    found = Verdicts()
    for case in json.loads((SUITE / draft / f"{file}.json").read_text()):
        tests = case["tests"]
        try:
            acceptor = Acceptor(case["schema"], default_dialect=DIALECTS[draft], order="any")
        except SpecError as error:
            if isinstance(error, InvalidSpecError) and "nothing satisfies" in error.message:
                found.exact += sum(not test["valid"] for test in tests)
                found.wrong += [f"{case['description']}: {error}" for test in tests if test["valid"]]
            elif error.keyword in REFUSED and REFUSED[error.keyword] in error.message:
                found.refused[f"{error.keyword}: {error.message}"] += len(tests)
            else:
                found.wrong.append(f"{case['description']}: {error}")
            continue
        for test in tests:
            what = f"{case['description']}: {test['description']}"
            wrong = _wrong_texts(acceptor, test)
            reasons = [why for (name, start), why in DIFFERENT.items() if name == file and what.startswith(start)]
            if not wrong:
                found.exact += 1
            elif reasons:
                found.different[reasons[0]] += 1
            else:
                found.wrong += [f"{what}: {text}" for text in wrong]
    return found


def _wrong_texts(acceptor: Acceptor, test: dict[str, object]) -> list[str]:
    """The texts of a document with the wrong verdict."""
    out = []
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(test["data"], ensure_ascii=False, separators=separators)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            continue  # a lone surrogate: not UTF-8
        if acceptor.text(data) != test["valid"]:
            out.append(text)
    return out
