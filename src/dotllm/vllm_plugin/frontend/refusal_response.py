"""The body of HTTP 400 for a refused constraint: OpenAI's error object, whose ``param`` and ``code`` programs can read.

``code`` is one of `dotllm.errors.CODES` behind "dotllm."; ``param`` is the field of the request. ``url`` is added.
vLLM's own errors have the HTTP status as their code, and its routers answer with the status that stands there. So it
stays there, and is only written differently.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pydantic import field_serializer

from dotllm.errors import DOCUMENTATION
from dotllm.vllm_plugin.specification import KINDS

_TOOL = re.compile(r"\(at /tools/(\d+)/((?:tools/\d+/)?)(function/parameters|parameters|input_schema)")


def param(request: Any, message: str) -> str | None:
    """The field of ``request`` that ``message`` refuses, as OpenAI's errors name it; None if it is not known."""
    tool = _TOOL.search(message)
    if tool is not None:
        inner = re.sub(r"tools/(\d+)/", r".tools[\1]", tool[2])
        return f"tools[{tool[1]}]{inner}.{tool[3].replace('/', '.')}"
    structured = getattr(request, "structured_outputs", None)
    for kind in KINDS if structured is not None else ():
        if getattr(structured, kind, None) is not None:
            return f"structured_outputs.{kind}"
    response_format = getattr(request, "response_format", None)
    if response_format is not None:
        has_schema = getattr(response_format, "type", "") == "json_schema"
        return "response_format.json_schema.schema" if has_schema else "response_format"
    return "text.format.schema" if getattr(request, "text", None) is not None else None


@cache
def _types() -> tuple[Any, Any]:
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse

    class RefusalInfo(ErrorInfo):
        url: str

        @field_serializer("code")
        def _written(self, _: int) -> str:
            return f"dotllm.{self.url.rpartition('#')[2]}"

    class RefusalResponse(ErrorResponse):
        error: RefusalInfo

    return RefusalInfo, RefusalResponse


def refusal_response(message: str, code: str, parameter: str | None) -> Any:
    """What an endpoint of vLLM returns for HTTP 400: an ``ErrorResponse``."""
    info, response = _types()
    url = f"{DOCUMENTATION}#{code}"
    return response(error=info(message=message, type="BadRequestError", code=400, param=parameter, url=url))
