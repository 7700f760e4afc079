"""Random walks under the schemas of zod's types. `jsonschema` judges all of them, and so does zod's own `parse` if it
is installed (`make test-clients`): it refuses texts only for the reasons that the corpus lists."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

import jsonschema
import pytest
import regex

from benchmarks.walks import parse, validator
from dotllm import Index, SpecWarning
from dotllm.errors import InvalidSpecError
from tests.cases import EVERY
from tests.languages.json_schema import zod
from tests.languages.json_schema.test_walks import walk
from tests.languages.json_schema.verdicts import byte_vocabulary

CASES = zod.cases()


def walks(case: zod.Case, sizes: tuple[int, ...]) -> list[str]:
    """Texts of a case's schema, each at most a size of ``sizes`` above the least; it is an error if most do not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        index = Index.from_json_schema(case.schema, byte_vocabulary())
    random = Random(case.id)
    found = [text.decode() for text in (walk(index, more, random) for more in sizes) if text is not None]
    assert len(found) > len(sizes) // 2
    return found


def _pattern(_: Any, pattern: str, text: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """The keyword pattern with Unicode properties, which `re` does not know."""
    if isinstance(text, str) and not regex.search(pattern, text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def test_there_are_many() -> None:
    assert min(sum(case.version == version for case in CASES) for version in ("zod 3", "zod 4")) >= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_schema_is_enforced_and_nothing_is_passed_over(case: zod.Case) -> None:
    if case.refused:
        with pytest.raises(InvalidSpecError, match=re.escape(case.refused)):
            Index.from_json_schema(case.schema, byte_vocabulary())
        return
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Index.from_json_schema(case.schema, byte_vocabulary())
    places = [re.findall(r"\(at (\S*)\)$", str(warning.message)) for warning in found]
    assert [*chain.from_iterable(places)] == case.warned
    judge = validator(case.schema)
    judge = jsonschema.validators.extend(type(judge), {"pattern": _pattern})(judge.schema)
    for text in walks(case, (0, 3, 20) if EVERY else (3,)):
        judge.validate(parse(text))


@pytest.mark.skipif("DOTLLM_NODE_MODULES" not in os.environ, reason="zod is fetched with npm (make test-clients)")
def test_zod_itself() -> None:
    assert zod.renewed() == CASES, "python -m tests.languages.json_schema.zod writes the corpus anew"
    asked = [
        (case, {"version": case.version, "name": case.name, "text": text})
        for case in CASES
        if not case.refused
        for text in walks(case, (0, 1, 3, 8, 20, 60) * 2)
    ]
    for (case, line), issue in zip(asked, zod.run("judge", [line for _, line in asked]), strict=True):
        if issue is not None:
            which = f"{issue['code']} {issue.get('format', '')}".strip()
            assert which in case.stricter, f"{case.id}: {line['text']}: {issue}"
