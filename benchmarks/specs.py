"""Reads specs files (see `benchmarks.make_specs` for the format)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.adapters.base import Spec
from benchmarks.tokens import Tokens

DEFAULT = Path(__file__).parent / "data" / "specs.json"


def dumps(value: Any, compact: bool) -> str:
    """A JSON value as text: raw UTF-8, either ``json.dumps``'s own spacing or none."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)


def read(path: Path = DEFAULT, *, compact: bool = False) -> list[Spec]:
    """All specs of a file, their JSON samples written with or without white space."""
    rows = json.loads(path.read_text())
    return [_spec(row, compact) for row in rows]


def _spec(row: dict[str, Any], compact: bool) -> Spec:
    texts = row["texts"] if "texts" in row else [dumps(value, compact) for value in row["values"]]
    return Spec(row["name"], row["kind"], row["spec"], tuple(texts), tuple(row["tags"]))


def long_texts(tokens: Tokens, length: int, path: Path = DEFAULT) -> list[tuple[Spec, list[int]]]:
    """Specs that describe outputs of any length, each with an output of at least ``length`` tokens."""
    found = []
    for row in json.loads(path.read_text()):
        if "long" in row:
            prefix, units, separator, suffix = row["long"]
            per_round = len(tokens.encode(separator.join(units) + separator))
            rounds = length // per_round + 1
            text = prefix + separator.join(units * rounds) + suffix
            found.append((_spec(row, compact=False), tokens.encode(text)))
    return found
