"""Every way a specification can be refused, by name, and where in the specification the fault lies.

All of them are ``ValueError`` so that a caller who knows nothing of dotllm still sees "bad input"; the server turns
each into HTTP 400 (or ends the one request).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

E = TypeVar("E", bound=BaseException)
S = TypeVar("S", bound="SpecError")


@dataclass(frozen=True)
class Pointer:
    """A JSON Pointer (RFC 6901); ``path`` is "" for the whole value, which is printed as "/"."""

    path: str = ""
    inner: Offset | LineColumn | None = None
    """The place within the text that stands there: a regular expression, a grammar."""

    def __truediv__(self, token: str | int) -> Pointer:
        """The member or item ``token`` of the value at this place."""
        return Pointer(f"{self.path}/{escaped(str(token))}")

    def around(self, inner: Location | None) -> Pointer:
        """The place ``inner`` of the value or text that stands here, as a place of the whole."""
        if inner is None:
            return self
        if isinstance(inner, Pointer):
            return Pointer(self.path + inner.path, inner.inner)
        return Pointer(self.path, inner)

    def __str__(self) -> str:
        return f"{self.path or '/'}{_shown(self.inner)}"


@dataclass(frozen=True)
class Offset:
    """Characters from the beginning of a regular expression."""

    characters: int

    def __str__(self) -> str:
        return f"offset {self.characters}"


@dataclass(frozen=True)
class LineColumn:
    """A place in the text of a grammar; both count from 1."""

    line: int
    column: int
    inner: Location | None = None
    """The place within the JSON value or regular expression that begins there."""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}{_shown(self.inner)}"


Location: TypeAlias = Pointer | Offset | LineColumn


def _shown(inner: Location | None) -> str:
    return "" if inner is None else f": {inner}"


def escaped(name: str) -> str:
    """``name`` as a reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


class SpecError(ValueError):
    """A specification that dotllm does not turn into an Index. ``str()`` says what, where and what to do.

    ``location`` is None where no part of the specification is at fault; ``keyword`` names what was refused.
    """

    def __init__(self, message: str, *, location: Location | None = None, keyword: str = "") -> None:
        super().__init__(message if location is None else f"{message} (at {location})")
        self.message = message
        self.location = location
        self.keyword = keyword

    @property
    def pointer(self) -> str:
        """``location`` as text, as messages and JSON output print it: "/a/b", "offset 7", "line 3, column 2" or ""."""
        return "" if self.location is None else str(self.location)

    def at(self: S, location: Location | None, keyword: str = "") -> S:
        """The same refusal at another place, naming ``keyword`` if that is given."""
        return type(self)(self.message, location=location, keyword=keyword or self.keyword)


class InvalidSpec(SpecError):
    """The specification itself is wrong: it does not parse, breaks its own standard, or nothing can satisfy it."""


class Unsupported(SpecError):
    """A correct specification that cannot be enforced exactly, so it is refused: ``keyword`` names the reason."""


class BudgetExceeded(Unsupported):
    """The specification needs more work or memory than its budget; deterministic, never a time-out."""


class EngineFault(RuntimeError):
    """An invariant of the engine does not hold: our bug, never the caller's. Servers answer HTTP 500."""


def without_frames(error: E) -> E:
    """``error`` without its traceback and those of the errors that led to it: errors that are kept must be so.

    A traceback keeps its frames alive with all their variables: guides, indexes, requests. A frame that holds the error
    is a cycle with it, which only a full garbage collection frees, and servers seldom make one.
    """
    chain: list[BaseException] = [error]
    while chain:
        link = chain.pop()
        chain += [before for before in (link.__cause__, link.__context__) if before is not None]
        link.__traceback__ = link.__cause__ = link.__context__ = None
    return error
