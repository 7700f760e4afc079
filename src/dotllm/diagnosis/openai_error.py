"""OpenAI's error object for a refusal: which field of the request, and which code programs can read.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import re
from typing import Any

from dotllm.errors import page

_TOOL = re.compile(r"\(at /tools/(\d+)/((?:tools/\d+/)?)(function/parameters|parameters|input_schema)")
_BESIDE = re.compile(
    r"(vllm_xargs|dotllm_|stop_token_ids|stop|bad_words|allowed_token_ids|kv_transfer_params|chat_template_kwargs)"
)
"""How messages begin that are about a field beside the constraint."""
_STRUCTURED = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


def error_fields(message: str, code: str, request: Any, parameter: str | None = None) -> dict[str, Any]:
    """``message``, ``type``, ``param`` and ``url`` of the refusal of ``request`` with `dotllm.errors.CODES`' ``code``.

    ``parameter``: the field, if it is known.
    """
    field = parameter or param(request, message)
    return {"message": message, "type": "BadRequestError", "param": field, "url": page("errors", code)}


def param(request: Any, message: str) -> str | None:
    """The field of ``request`` that ``message`` refuses, as OpenAI's errors name it; None if it is not known."""
    tool = _TOOL.search(message)
    if tool is not None:
        inner = re.sub(r"tools/(\d+)/", r".tools[\1]", tool[2])
        return f"tools[{tool[1]}]{inner}.{tool[3].replace('/', '.')}"
    beside = _BESIDE.match(message)
    if beside is not None:
        return beside[1].replace("dotllm_", "vllm_xargs")
    structured = getattr(request, "structured_outputs", None)
    for kind in _STRUCTURED if structured is not None else ():
        if getattr(structured, kind, None) is not None:
            return f"structured_outputs.{kind}"
    response_format = getattr(request, "response_format", None)
    if response_format is not None:
        has_schema = getattr(response_format, "type", "") == "json_schema"
        return "response_format.json_schema.schema" if has_schema else "response_format"
    return "text.format.schema" if getattr(request, "text", None) is not None else None
