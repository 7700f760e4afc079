"""Many simultaneous requests with a constraint that the server has never seen: all meet the same new index in one step.

None fails, and the engine takes no more memory than an index of that constraint needs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import count, product
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dotllm.demo.server import Server
from tests.serve.conftest import NAME
from tests.serve.raw import complete, together

pytestmark = pytest.mark.serve

MOST_GROWTH = 300 << 20
LARK = """
start: term (("+" | "-") term)* "NAME"
term: atom (("*" | "/") atom)*
atom: NUMBER | WORD | "(" term ")"
NUMBER: /[0-9]+(\\.[0-9]+)?/
WORD: /[a-z]+/
"""
_names = (f"never_seen_{number}" for number in count())


def plain_json(name: str) -> dict[str, Any]:
    """Plain JSON mode, with a property that makes it new."""
    return {"json": {"type": "object", "properties": {name: True}}}


def two_properties(name: str) -> dict[str, Any]:
    properties = {name: {"type": "string"}, "number": {"type": "integer"}}
    return {"json": {"type": "object", "properties": properties, "required": [name, "number"]}}


def array(name: str) -> dict[str, Any]:
    properties = {name: {"enum": ["x", "y"]}, "numbers": {"type": "array", "items": {"type": "number"}}}
    return {"json": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": properties}}}


def lark(name: str) -> dict[str, Any]:
    return {"grammar": LARK.replace("NAME", name)}


def engine_memory(server: Server) -> int:
    """Resident bytes of the engine core and the processes that compile for it."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[3]) != server.process.pid:  # the session
                continue
            name, command = (folder / "comm").read_text(), (folder / "cmdline").read_bytes()
            if "EngineCor" in name or b"dotllm.compilation" in command:
                found += int((folder / "statm").read_text().split()[1]) * 4096
        except (OSError, IndexError):  # the process has just ended
            continue
    assert found, "no engine core among the server's processes"
    return found


ALL = os.environ.get("BURSTS") == "all"
KINDS = (plain_json, two_properties, array, lark)
FEW = [(plain_json, 256), *((kind, 64) for kind in KINDS[1:])]
"""The server runs 64 requests at a time; of 256 the others wait. ``BURSTS=all`` tries both numbers with each kind."""


@pytest.mark.parametrize(("kind", "many"), list(product(KINDS, (64, 256))) if ALL else FEW)
def test_one_new_constraint(server: Server, kind: Any, many: int) -> None:
    complete(server, NAME, structured_outputs={"regex": "[a-z]{4}"})  # so that everything made once exists
    idle = engine_memory(server)
    for _ in range(2 if many == 64 and ALL else 1):
        constraint = kind(next(_names))

        def one(seed: int, constraint: dict[str, Any] = constraint) -> Any:
            return complete(server, NAME, max_tokens=16, seed=seed, structured_outputs=constraint)

        answers = together(many, one)
        assert Counter(answer.status for answer in answers) == {200: many}, {
            answer.message for answer in answers if answer.status != 200
        }
        assert {answer.body["choices"][0]["finish_reason"] for answer in answers} <= {"stop", "length"}
        if "json" in constraint:
            for answer in answers:
                if answer.body["choices"][0]["finish_reason"] == "stop":
                    jsonschema.validate(json.loads(answer.text), constraint["json"])
    assert engine_memory(server) - idle < MOST_GROWTH
