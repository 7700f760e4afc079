"""DeferredGrammar: stands in for a grammar that still compiles, while its request needs none (`pending_grammars`).

vLLM treats the stand-in as a finished grammar, but gives it only the tokens that end a reasoning, none of which belong
to the constraint. If vLLM asks for anything else, the call waits for the compile, so the answer is late but right.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from vllm.v1.structured_output.backend_types import StructuredOutputGrammar


def _later(method: str) -> Callable[..., Any]:
    """The ``method`` of the grammar, for which the call waits."""
    return lambda self, *args: getattr(self.future.result(), method)(*args)


class DeferredGrammar(StructuredOutputGrammar):
    """vLLM's ``StructuredOutputGrammar`` over a future of one."""

    def __init__(self, future: Future[StructuredOutputGrammar]) -> None:
        self.future = future

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take tokens."""
        return not tokens or bool(self.future.result().accept_tokens(request_id, tokens))

    validate_tokens, rollback, fill_bitmask = map(_later, ("validate_tokens", "rollback", "fill_bitmask"))

    def is_terminated(self) -> bool:
        """Whether the text has ended; it has not begun."""
        return False

    def reset(self) -> None:
        """Go back to the beginning of the text; no token has been taken."""
