"""Every way a specification can be refused, by name.

All of them are ``ValueError`` so that a caller who knows nothing of dotllm still sees "bad input"; the server turns
each into HTTP 400 (or ends the one request). ``pointer`` is a JSON Pointer (RFC 6901) into the specification where
there is one ("/" for the whole, as "" is for no place), else an offset or a line in the text, else "".
"""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


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


def without_frames(error: E) -> E:
    """``error`` without its traceback and those of the errors that led to it, for whoever keeps it.

    A traceback has the frames that were left, with all their variables: guides, indexes, requests. Frames that hold
    the error are a cycle with it, which only a full collection frees, and servers make few of those.
    """
    links: list[BaseException] = [error]
    while links:
        one = links.pop()
        links += [link for link in (one.__cause__, one.__context__) if link is not None]
        one.__traceback__ = one.__cause__ = one.__context__ = None
    return error
