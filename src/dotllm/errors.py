"""Every way a specification can be refused, by name, and where in the specification the fault lies.

All of them are ``ValueError`` so that a caller who knows nothing of dotllm still sees "bad input"; the server turns
each into HTTP 400 (or ends the one request). The classes say who has to act; ``code`` says what is wrong, out of the
closed set `CODES`, and docs/errors.md, which the package has beside this file, has a section for each code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

E = TypeVar("E", bound=BaseException)
S = TypeVar("S", bound="SpecError")

Code = Literal[
    "invalid_value",
    "not_json",
    "syntax",
    "unknown_type",
    "unknown_reference",
    "unknown_rule",
    "unknown_field",
    "unknown_token",
    "remote_reference",
    "unsatisfiable",
    "unsupported",
    "too_large",
    "too_deep",
    "too_slow",
    "tokenizer",
    "conflict",
    "too_few_tokens",
]
"""What is wrong with a specification. A name never changes its meaning: clients branch on it."""
CODES: tuple[Code, ...] = get_args(Code)
SITE = ""
"""What messages put before the path of a page: the address where a release's documentation lies, "/" at its end."""


def page(name: str, section: str) -> str:
    """Where ``section`` of ``docs/{name}.md`` can be read."""
    return f"{SITE}docs/{name}.md#{section}"


class Span(NamedTuple):
    """A place in a text: characters from its beginning (of a regular expression), or line and column from 1."""

    offset: int | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Pointer:
    """A JSON Pointer (RFC 6901); ``path`` is "" for the whole value."""

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
        return _joined(printable(self.path), self.inner)


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
        return _joined(f"line {self.line}, column {self.column}", self.inner)


Location: TypeAlias = Pointer | Offset | LineColumn


def _joined(place: str, inner: Location | None) -> str:
    within = "" if inner is None else str(inner)
    return f"{place}: {within}" if place and within else place or within


def printable(text: str) -> str:
    """``text`` with halves of surrogate pairs, which no encoding has, as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def escaped(name: str) -> str:
    """``name`` as a reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


class Related(NamedTuple):
    """Another place of the specification that the refusal is about, and what is there."""

    location: Location
    message: str


class SpecError(ValueError):
    """A specification that dotllm does not turn into an Index. ``str()`` says what, what to do, and where.

    ``location`` is None where no part of the specification is at fault; ``keyword`` names what was refused. ``help``
    is a remedy, or "". ``related``: the other places that the message is about, in the order of the message.
    """

    default_code: ClassVar[Code] = "invalid_value"

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        keyword: str = "",
        code: Code | None = None,
        help: str = "",
        related: Sequence[Related] = (),
    ) -> None:
        message, help = printable(message), printable(help)
        what = f"{message}; {help}" if help else message
        super().__init__(what if location is None or not str(location) else f"{what} (at {location})")
        self.message = message
        self.location = location
        self.keyword = keyword
        self.code: Code = code or self.default_code
        self.help = help
        self.related = tuple(related)

    @property
    def place(self) -> str:
        """``location`` as messages print it: "/a/b", "offset 7", "line 3, column 2"; "" for the whole, or for None."""
        return "" if self.location is None else str(self.location)

    @property
    def pointer(self) -> str | None:
        """The JSON Pointer (RFC 6901) of ``location``; "" is the whole, and None a place in no JSON value."""
        outer = self.location
        place = outer.inner if isinstance(outer, LineColumn) else outer
        return place.path if isinstance(place, Pointer) else None

    @property
    def span(self) -> Span | None:
        """The place in the text of a regular expression or a grammar; None where ``location`` is in neither."""
        place = self.location.inner if isinstance(self.location, Pointer) else self.location
        if isinstance(place, Offset):
            return Span(offset=place.characters)
        return None if place is None else Span(line=place.line, column=place.column)

    @property
    def url(self) -> str:
        """The section of the documentation about ``code``; ``dotllm explain CODE`` prints it."""
        return page("errors", self.code)

    def at(self: S, location: Location | None, keyword: str = "") -> S:
        """The same refusal at another place, naming ``keyword`` if that is given."""
        return self.replaced(location=location, keyword=keyword or self.keyword)

    def replaced(self: S, **changes: object) -> S:
        """The same refusal with other arguments of the constructor, ``message`` included."""
        same = {name: getattr(self, name) for name in ("message", "location", "keyword", "code", "help", "related")}
        return type(self)(**(same | changes))


class InvalidSpecError(SpecError):
    """The specification itself is wrong: it does not parse, breaks its own standard, or nothing can satisfy it."""


class UnsupportedError(SpecError):
    """A correct specification that cannot be enforced exactly, so it is refused: ``keyword`` names the reason."""

    default_code: ClassVar[Code] = "unsupported"


class BudgetExceededError(UnsupportedError):
    """The specification needs more work or memory than its budget; deterministic, never a time-out."""

    default_code: ClassVar[Code] = "too_large"


class TooFewTokensError(SpecError):
    """No text can be completed with the tokens that are left: ``needed`` are, the end token among them."""

    default_code: ClassVar[Code] = "too_few_tokens"

    def __init__(self, needed: int, left: int) -> None:
        super().__init__(f"{needed} tokens at least are needed to end the text, {left} are left", keyword="tokens_left")
        self.needed = needed
        self.left = left

    def replaced(self: S, **changes: object) -> S:
        """Nothing of a specification is at fault, so there is nothing to replace."""
        return self


# The names of the last release; they end with the next one.
InvalidSpec = InvalidSpecError
Unsupported = UnsupportedError
BudgetExceeded = BudgetExceededError
TooFewTokens = TooFewTokensError


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
