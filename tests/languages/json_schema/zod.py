"""Types of zod (`zod_types.mjs`): their schemas in the corpus, and zod itself, if Node.js has it.

`python -m tests.languages.json_schema.zod` rewrites the corpus. DOTLLM_NODE_MODULES names the folder with zod 4 (which
contains zod 3, too) and zod-to-json-schema; `make test-clients` installs them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

CASES = Path(__file__).parents[2] / "corpus" / "json_schema" / "zod.json"
TYPES = Path(__file__).with_name("zod_types.mjs")


class Case(NamedTuple):
    """A type, and what dotllm makes of its schema."""

    version: str
    name: str
    schema: dict[str, Any]
    stricter: dict[str, str]
    """what zod requires beyond the schema: the reason for each issue that it raises (``code format``); nothing else
    may be refused"""
    refused: str
    """what the message says, if nothing satisfies the schema"""
    warned: list[str]
    """the places of the engine's warnings"""

    @property
    def id(self) -> str:
        return f"{self.version}: {self.name}"


def cases() -> list[Case]:
    """All cases of the corpus."""
    lines = [json.loads(line.rstrip(",")) for line in CASES.read_text().splitlines() if line.startswith("{")]
    return [Case(**{"stricter": {}, "refused": "", "warned": []} | line) for line in lines]


def write(found: Iterable[Case]) -> None:
    """Write the corpus, with a line for each case."""
    lines = [
        json.dumps(
            {name: value for name, value in case._asdict().items() if value or name == "schema"}, ensure_ascii=False
        )
        for case in found
    ]
    CASES.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def run(mode: str, lines: Iterable[dict[str, str]] = ()) -> list[Any]:
    """Run zod in Node.js; returns a value for each line."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "node_modules").symlink_to(Path(os.environ["DOTLLM_NODE_MODULES"]).resolve())
        script = shutil.copy(TYPES, folder)
        text = "\n".join(map(json.dumps, lines))
        done = subprocess.run(["node", script, mode], input=text, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def renewed() -> list[Case]:
    """The corpus with the schemas that zod writes now; new cases have only a schema."""
    known = {(case.version, case.name): case for case in cases()} if CASES.exists() else {}
    out = []
    for line in run("schemas"):
        case = known.get((line["version"], line["name"]), Case("", "", {}, {}, "", []))
        out.append(case._replace(**line))
    return out


if __name__ == "__main__":
    write(renewed())
