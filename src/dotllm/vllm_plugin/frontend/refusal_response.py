"""The body of HTTP 400 for a refusal: vLLM's ``ErrorResponse`` with the fields of `dotllm.diagnosis.openai_error`.

vLLM's routers answer with the HTTP status that stands in ``code``. So it stays there, and is written differently.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import field_serializer


@cache
def refusal_response() -> Any:
    """The class of the response: its ``error`` has a ``url``, whose fragment is written as "dotllm.CODE"."""
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse

    class RefusalInfo(ErrorInfo):
        code: int = 400
        url: str

        @field_serializer("code")
        def _written(self, _: int) -> str:
            return f"dotllm.{self.url.rpartition('#')[2]}"

    class RefusalResponse(ErrorResponse):
        error: RefusalInfo

    return RefusalResponse
