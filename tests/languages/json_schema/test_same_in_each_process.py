"""Equal schemas give equal grammars in each process, however Python's hashes order sets: what one process stored is
what another one would have compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random
from typing import Any

from tests.cases import EVERY, few
from tests.languages.json_schema.random_schemas import random_schema

PROGRAM = """
import hashlib, json, sys
from dotllm.errors import SpecError
from dotllm.languages.json_schema import json_schema_to_grammar

def digest(schema):
    found = hashlib.sha256()
    try:
        for array in json_schema_to_grammar(json.dumps(schema)).arrays():
            found.update(array.tobytes())
    except SpecError as error:
        found.update(str(error).encode())
    return found.hexdigest()

print(json.dumps([digest(schema) for schema in json.load(sys.stdin)]))
"""


def patterns(*texts: str) -> list[dict[str, Any]]:
    return [{"pattern": text} for text in texts]


BY_HAND: list[dict[str, Any]] = [
    {"type": "string", "anyOf": [{"allOf": patterns("a1", "b2", "^c"), "minLength": 3}, {"allOf": patterns("x", "y")}]},
    {"type": "string", "anyOf": [{"not": {"anyOf": patterns(a, b)}} for a, b in ("ab", "cd", "ef", "gh")]},
    {"type": "string", "not": {"allOf": [{"anyOf": patterns("ab1", "b12")}, {"anyOf": patterns("q", "[0-9]{3}")}]}},
    {"type": "string", "anyOf": [{"not": {"enum": ["a", "b", "c"]}, "maxLength": 3}, *patterns("^z+$", "^y+$")]},
    {"type": "number", "anyOf": [{"multipleOf": m, "not": {"multipleOf": n}} for m, n in ((2, 3), (5, 7), (11, 13))]},
    {"anyOf": [{"type": "object", "patternProperties": {p: {"type": t}}} for p, t in (("a", "null"), ("b", "string"))]},
    {"type": "object", "anyOf": [{"required": names} for names in (["a", "b"], ["b", "c"], ["c", "d"])]},
    {"type": "array", "anyOf": [{"contains": {"const": v}} for v in (1, "x", None)], "maxItems": 3},
]


def digests(schemas: list[Any], seed: int) -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(schemas), capture_output=True, text=True, check=True, timeout=900,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )  # fmt: skip
    found: list[str] = json.loads(answer.stdout)
    return found


def test_the_seed_of_hashes_changes_no_grammar() -> None:
    schemas = [*BY_HAND, *(random_schema(Random(seed)) for seed in range(few(300)))]
    first, *others = (digests(schemas, seed) for seed in range(1, 4 if EVERY else 3))
    assert len({*first}) > len(schemas) / 3
    for other in others:
        assert [s for s, a, b in zip(schemas, first, other, strict=True) if a != b] == []
