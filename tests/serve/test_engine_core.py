"""The engine core alone takes over constraints, whatever backend a front end without our plugin names.

vLLM's Rust front end (0.33) is an example. The requests here look like those it sends: encoded, with vLLM's backend.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dotllm.vllm_plugin.enforce import errors
from tests.serve import scripts
from tests.serve.releases import INSTALLED

pytestmark = pytest.mark.serve


@pytest.fixture(scope="module")
def result(demo_model: Path) -> Any:
    found, _ = scripts.run("engine_core_script.py", demo_model)
    return found


@pytest.mark.parametrize(
    ("name", "valid"),
    [("regex", "[a-c]{3,6}[0-9]"), ("choice", "yes|no"), ("json", '"a"|1|null'), ("grammar", "b*a"), ("tag", "done")],
)
def test_a_constraint_is_enforced(result: Any, name: str, valid: str) -> None:
    text, reason = result["texts"][name], result["ends"][name][0]
    assert (reason == "stop" and re.fullmatch(valid, text)) or (reason, name) == ("length", "grammar"), text


@pytest.mark.parametrize(
    ("name", "says"), [("no regex", "regular expression"), ("no schema", "strin"), ("nothing fits", "")]
)
def test_a_refusal_ends_its_request_with_our_message(result: Any, name: str, says: str) -> None:
    reason, stop_reason, error = result["ends"][name]
    assert reason == "error" and not result["texts"][name]
    failure = errors.decode(stop_reason)
    assert failure is not None and failure.status == 400 and says in failure.message
    if INSTALLED[:2] >= (0, 33):  # the form that every front end understands
        assert error == failure.message
