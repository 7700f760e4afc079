"""The formats of a structural tag, as JSON, for what hooks change in the tags that vLLM makes of tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def formats(tag: Any) -> Iterator[dict[str, Any]]:
    """All objects of a structural tag but what is in schemas; they may be changed while one goes through them."""
    todo = [tag]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            yield one
            todo.extend(part for name, part in one.items() if name not in ("json_schema", "schema"))


def schemas(tag: Any) -> Iterator[dict[str, Any]]:
    """Those of `formats` that are schemas; one under the older name of a style gets the present one."""
    for one in formats(tag):
        if one.get("type") == "qwen_xml_parameter":
            one |= {"type": "json_schema", "style": "qwen_xml"}
        if one.get("type") == "json_schema":
            yield one
