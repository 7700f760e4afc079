"""A tool whose name cannot stand in a call is refused where calls of it are enforced.

vLLM's notations have the name between quotes or in a mark, as it is: of ``a"b`` comes ``{"name": "a"b", …``, which no
parser reads, so the model is made to write a call that nobody finds. What breaks one notation or another is quotes,
backslashes and control characters. OpenAI allows letters, digits, ``_`` and ``-`` only; others are in use, and left.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend.tool_calls.tag_formats import formats

_BREAKS = re.compile(r'["\\\0-\x1f\x7f]')


def refuse(request: Any, params: Any) -> None:
    """Refuse an OpenAI request for the names of its tools in the ``SamplingParams`` made of it.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    tag = getattr(params.structured_outputs, "structural_tag", None)
    if not isinstance(tag, str) or not front_end.serves():
        return
    for i, tool in enumerate(getattr(request, "tools", None) or ()):
        name = getattr(getattr(tool, "function", tool), "name", None)
        if isinstance(name, str) and (found := _BREAKS.search(name)) and _writes(tag, name):
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(
                f"tools[{i}] is named {name!r}, and no call can be made of a name with {found[0]!r} in it: "
                "use letters, digits, '_', '-' and '.'",
                parameter="tools",
            )


def _writes(tag: str, name: str) -> bool:
    """Whether a structural tag has the name in a fixed text."""
    try:
        parts = [*formats(json.loads(tag))]
    except ValueError:  # a user's own; it is refused elsewhere
        return False
    texts = [one.get(field) for one in parts for field in ("begin", "value")]
    return any(isinstance(text, str) and name in text for text in texts)
