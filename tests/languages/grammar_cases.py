"""Reads tests/corpus/grammars (its README describes the format)."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent.parent / "corpus" / "grammars"
_CASE = re.compile(r"^=== (\S+) (lark|ebnf)\n(.*?)^--- yes\n(.*?)^--- no\n(.*?)(?=^=== |\Z)", re.MULTILINE | re.DOTALL)


class Case(NamedTuple):
    """A grammar, with texts that it accepts and texts that it rejects."""

    name: str
    notation: str
    grammar: str
    yes: list[str]
    no: list[str]


@lru_cache(maxsize=1)
def cases() -> list[Case]:
    """All cases of the corpus."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        matches = list(_CASE.finditer(text))
        assert sum(len(m.group()) for m in matches) == len(text), f"{path} does not follow the format"
        for name, notation, grammar, yes, no in (m.groups() for m in matches):
            found.append(Case(name, notation, grammar, _texts(yes), _texts(no)))
    assert len({case.name for case in found}) == len(found), "two cases have the same name"
    return found


def _texts(block: str) -> list[str]:
    return [json.loads(line) for line in block.splitlines() if line]


# "case/peer" → who is right ("dotllm", "policy", "peer extension") and why.
DIFFERENCES: dict[str, dict[str, str]] = json.loads((FOLDER / "differences.json").read_text(encoding="utf-8"))
