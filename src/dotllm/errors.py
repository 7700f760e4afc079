"""Every way a specification can be refused, by name.

All of them are ``ValueError`` so that a caller who knows nothing of dotllm still sees "bad input"; the server turns
each into HTTP 400 (or ends the one request). ``pointer`` is a JSON Pointer (RFC 6901) into the specification where
there is one ("/" for the whole, as "" is for no place), else an offset or a line in the text, else "".
"""

from __future__ import annotations


class SpecError(ValueError):
    """A specification that dotllm does not turn into an Index. ``str()`` says what, where and what to do."""

    def __init__(self, message: str, *, pointer: str = "", keyword: str = "") -> None:
        where = f" (at {pointer})" if pointer else ""
        super().__init__(f"{message}{where}")
        self.message = message
        self.pointer = pointer
        self.keyword = keyword


class InvalidSpec(SpecError):
    """The specification itself is wrong: it does not parse, breaks its own standard, or nothing can satisfy it."""


class Unsupported(SpecError):
    """A correct specification that cannot be enforced exactly, so it is refused: ``keyword`` names the reason."""


class BudgetExceeded(Unsupported):
    """The specification needs more work or memory than its budget; deterministic, never a time-out."""
