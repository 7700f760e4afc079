"""Constrains each turn of a session whose input streams in, by the parameters of that turn.

vLLM keeps such a session as one request. Each chunk of input comes as a separate request, whose specification is
compiled, but the session does not take over the grammar. So the second answer has the grammar of the first, which has
ended, and is free text. Here the session takes over the chunk's grammar, too, and waits for it as a new request does.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Original, Target

_STRUCTURED = "_dotllm_structured_output_request"  # attribute of a ``StreamingUpdate``

HOOK = Hook(
    name="sessions",
    summary="a session whose input streams in is constrained in each turn",
    without_it="such a session is constrained in its first turn only",
    targets=[Target("vllm.v1.request", "Request.structured_output_request")],
)


def begin_turn(session: vllm_types.Request, update: Any) -> None:
    """Begin the next turn of ``session``, with the constraint that came with ``update``."""
    from vllm.v1.request import RequestStatus

    structured = getattr(update, _STRUCTURED, None)
    session.structured_output_request = structured
    if structured is not None:
        session.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


@HOOK.replaces("vllm.v1.request:StreamingUpdate.from_request")
def _from_request(cls: Any, request: vllm_types.Request, *, original: Original) -> Any:
    update = original(cls, request)
    if update is not None:
        setattr(update, _STRUCTURED, request.structured_output_request)
    return update
