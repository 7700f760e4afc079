"""The HTTP 400 body of a refusal: vLLM's ``ErrorResponse`` with the fields of `dotllm.diagnosis.openai_error`.

vLLM's routers take the HTTP status from ``code``. So the status stays there; only its serialised form changes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import Field, model_serializer

PREFIX = "dotllm."
"""The prefix of the codes of refusals."""


@cache
def refusal_response() -> Any:
    """The class of the response: its ``error`` is made of `error_fields`, with its code written as "dotllm.REASON"."""
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse

    class RefusalInfo(ErrorInfo):
        code: int = 400
        reason: str = Field(exclude=True)
        url: str | None = None

        @model_serializer(mode="wrap")
        def _written(self, write: Any) -> dict[str, Any]:
            body = {**write(self), "code": f"{PREFIX}{self.reason}"}
            return body if self.url else {name: value for name, value in body.items() if name != "url"}

    class RefusalResponse(ErrorResponse):
        error: RefusalInfo

    return RefusalResponse
