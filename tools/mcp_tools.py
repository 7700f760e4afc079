"""Asks an MCP server for its tools over stdio, and prints them as a line of `tests/corpus/tools.jsonl.gz`.

    python -m tools.mcp_tools 'mcp-server-time 2026.8.1' mcp-server-time --local-timezone UTC

The schemas keep their structure; human-written texts are left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import PaginatedRequestParams

TEXTS = ("description", "title", "$comment")
EXAMPLES = ("examples", "example", "markdownDescription", "enumDescriptions")
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
VALUES = ("enum", "const", "required")
LONGEST_DEFAULT = 40
SECONDS = 60


def shape(schema: Any) -> Any:
    """A schema without human-written texts."""
    if isinstance(schema, list):
        return [shape(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in TEXTS and isinstance(value, str):
            out[keyword] = "text"
        elif keyword in NAMED and isinstance(value, dict):
            out[keyword] = {name: shape(part) for name, part in value.items()}
        elif keyword in VALUES:
            out[keyword] = value
        elif keyword == "default":
            out[keyword] = "text" if isinstance(value, str) and len(value) > LONGEST_DEFAULT else value
        elif keyword not in EXAMPLES:
            out[keyword] = shape(value)
    return out


async def tools(command: str, arguments: list[str]) -> list[dict[str, Any]]:
    """The tools of the server that this command starts."""
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(SECONDS), stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        page = None
        while True:
            listed = (await session.list_tools(params=page)).model_dump(mode="json", by_alias=True)
            found += [{"name": tool["name"], "parameters": shape(tool["inputSchema"])} for tool in listed["tools"]]
            if not listed.get("nextCursor"):
                return found
            page = PaginatedRequestParams(cursor=listed["nextCursor"])


if __name__ == "__main__":
    name, command, *arguments = sys.argv[1:]
    line = {"server": name, "tools": asyncio.run(tools(command, arguments))}
    print(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
