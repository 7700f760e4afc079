"""Tools of agents: of 51 MCP servers, as `tools/list` returns them, and a sample of BFCL's (bfcl-eval, Apache-2.0).

Each line of the corpus names a package of npm or PyPI with its version. `tools/mcp_tools.py` writes the corpus. It sets
descriptions and titles to "text", leaves out examples, and keeps all other keywords.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CORPUS = Path(__file__).parent / "corpus" / "tools.jsonl.gz"
ALL = os.environ.get("TOOLS") == "all"
"""Whether the tests try all tools."""


class Tool(NamedTuple):
    """One tool."""

    server: str
    name: str
    parameters: dict[str, Any]

    @property
    def strict(self) -> dict[str, Any]:
        """The tool as a request contains it."""
        function = {"name": self.name, "parameters": self.parameters, "strict": True}
        return {"type": "function", "function": function}


@cache
def servers() -> dict[str, list[Tool]]:
    """The tools of each server."""
    found: dict[str, list[Tool]] = {}
    for line in gzip.decompress(CORPUS.read_bytes()).decode().splitlines():
        listed = json.loads(line)
        name = listed["server"]
        found[name] = [Tool(name, tool["name"], tool["parameters"]) for tool in listed["tools"]]
    return found
