"""DeferredGrammar: stands in for a grammar that still compiles, while its request needs none (`pending_grammars`).

vLLM treats the stand-in as a finished grammar, but gives it only the tokens that end a reasoning, none of which belong
to the constraint. If vLLM asks for anything else, the call waits for the compile, so the answer is late but right.
"""

from __future__ import annotations

from concurrent.futures import Future

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar


class DeferredGrammar(StructuredOutputGrammar):
    """vLLM's ``StructuredOutputGrammar`` over a future of one."""

    def __init__(self, future: Future[StructuredOutputGrammar]) -> None:
        self.future = future

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take tokens."""
        return not tokens or bool(self.future.result().accept_tokens(request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix that would be accepted."""
        accepted: list[int] = self.future.result().validate_tokens(tokens)
        return accepted

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        self.future.result().rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write a mask."""
        self.future.result().fill_bitmask(bitmask, batch_index)

    def is_terminated(self) -> bool:
        """Whether the text has ended; it has not begun."""
        return False

    def reset(self) -> None:
        """Go back to the beginning of the text; no token has been taken."""
