"""The benchmark's samples satisfy its specs, judged by ``re`` and ``jsonschema``."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from benchmarks.adapters.base import Spec
from benchmarks.specs import read

SPECS = read()


def test_enough_and_distinct() -> None:
    """Issue 2 asks for ten specs. Their names are the keys of the results."""
    assert len(SPECS) >= 12
    assert len({spec.name for spec in SPECS}) == len(SPECS)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_samples_satisfy(spec: Spec) -> None:
    """Every sample is valid under an oracle that is not an engine under test. (The run itself judges grammars.)"""
    assert spec.texts
    for text in spec.texts:
        if spec.kind == "regex":
            assert re.fullmatch(spec.spec, text)
        elif spec.kind == "json_schema":
            jsonschema.Draft202012Validator(spec.spec).validate(json.loads(text))
        elif spec.kind == "json_object":
            assert isinstance(json.loads(text), dict)
        elif spec.kind == "choice":
            assert text in spec.spec
