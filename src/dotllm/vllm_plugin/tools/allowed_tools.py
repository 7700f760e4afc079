"""A ``tool_choice`` of type ``allowed_tools``: the model may call some of a request's tools (chats and Responses).

vLLM refuses it in a chat, and forgets the tools of a Responses request that has it. Here, before parsing, the request
keeps only the allowed tools, and the mode becomes its ``tool_choice``, so every tool parser reads a request with fewer
tools. The model is not shown the others. It may still know them from earlier turns, so even in mode ``auto`` its calls
are constrained to the allowed tools (`is_restricted`, `constraints`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import shown
from dotllm.vllm_plugin.enforce.validation import refuse

TYPE = "allowed_tools"
_RESTRICTED = "dotllm_restricted"
"""The unknown field that marks a parsed request as restricted; no client can send its value."""


def restricted(request: Mapping[str, object]) -> Mapping[str, object]:
    """``request``, rewritten if its ``tool_choice`` is of this type. Raises as `refuse` does."""
    choice = request.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != TYPE:
        return request
    inner = choice.get(TYPE, choice)  # a chat has one more object around it
    mode, allowed = (inner.get("mode"), inner.get("tools")) if isinstance(inner, dict) else (None, None)
    tools = request.get("tools")
    if mode not in ("auto", "required"):
        refuse(f"tool_choice of type {TYPE!r} has the mode 'auto' or 'required', not {shown(mode)}", "tool_choice")
    if not isinstance(allowed, list) or not allowed or not isinstance(tools, list):
        refuse(f"tool_choice of type {TYPE!r} needs a list of some of the request's 'tools'", "tool_choice")
    for entry in allowed:
        if not any(_describes(entry, tool) for tool in tools):
            refuse(f"tool_choice allows {shown(entry, 80)}, which is none of 'tools'", "tool_choice")
    kept = [tool for tool in tools if any(_describes(entry, tool) for entry in allowed)]
    return {**request, "tools": kept, "tool_choice": mode, _RESTRICTED: ()}


def is_restricted(request: Any) -> bool:
    """Whether `restricted` rewrote ``request`` before it was parsed."""
    return (getattr(request, "model_extra", None) or {}).get(_RESTRICTED) == ()


def _describes(entry: object, tool: object) -> bool:
    """Whether ``tool`` has all that ``entry`` says: its type and name."""
    if isinstance(entry, dict) and entry and isinstance(tool, dict):
        return all(name in tool and _describes(value, tool[name]) for name, value in entry.items())
    return not isinstance(entry, dict) and entry == tool
