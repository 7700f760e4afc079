"""DeferredGrammar: stands for a grammar that still compiles, while its request needs none (`pending_grammars`).

vLLM takes it for a grammar that is there, so nothing of vLLM's looks at the future meanwhile. Should somebody ask for a
mask too early, the answer is right and only late: the call waits for the compile.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from dotllm.errors import without_frames


class DeferredGrammar(StructuredOutputGrammar):
    """vLLM's ``StructuredOutputGrammar`` over a future of one."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future
        self._backlog: list[tuple[str, list[int]]] = []
        self._grammar: Any = None

    @property
    def pending(self) -> bool:
        """Whether the compile has not ended."""
        return not self.future.done()

    @property
    def error(self) -> Exception | None:
        """Why there will be no grammar; None while it is pending, or if there is one."""
        if self.pending:
            return None
        try:
            error = self.future.exception()
        except CancelledError as cancelled:
            return without_frames(cancelled)
        return error if isinstance(error, Exception) else None

    @property
    def resolved(self) -> Any:
        """The grammar, once somebody has needed it; else None."""
        return self._grammar

    def resolve(self) -> Any:
        """The grammar, having taken the tokens that came before it was there. Waits; raises what the compile did."""
        if self._grammar is None:
            self._grammar = self.future.result()
            for request_id, tokens in self._backlog:
                # A token it rejects ends the request at its next one, as if it had been rejected when it came.
                self._grammar.accept_tokens(request_id, tokens)
        return self._grammar

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take tokens, now or when the grammar is there."""
        if self._grammar is None and (self.pending or self.error is not None):
            if tokens:
                self._backlog.append((request_id, tokens))
            return True
        return bool(self.resolve().accept_tokens(request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix that would be accepted."""
        accepted: list[int] = self.resolve().validate_tokens(tokens)
        return accepted

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        self.resolve().rollback(num_tokens)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Write a mask."""
        self.resolve().fill_bitmask(bitmask, batch_index)

    def is_terminated(self) -> bool:
        """Whether the text has ended: not before it began."""
        return not self.pending and self.error is None and bool(self.resolve().is_terminated())

    def reset(self) -> None:
        """Back to the first token."""
        self._backlog.clear()
        if self._grammar is not None:
            self._grammar.reset()
