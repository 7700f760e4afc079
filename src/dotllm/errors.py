"""The errors that refuse specifications, each with the place of the fault in the specification.

All of them are ``ValueError``, so a caller that does not know dotllm still sees "bad input"; the server turns each into
HTTP 400 (or ends only that request). The classes say who has to act. ``code`` names the fault, from the closed set
`CODES`; docs/errors.md, which the package contains next to this file, has a section for each code.
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
"""The faults of specifications. A code never changes its meaning, because clients branch on it."""
CODES: tuple[Code, ...] = get_args(Code)
MOST_CHARACTERS = 2000
"""About the most characters of a message, of a help, and of a pointer."""
_MOST_OF_A_KEYWORD = 200
_MOST_RELATED = 32
SITE = ""
"""Messages put this before the path of a page: the address of a release's documentation, ending in "/"."""


def page(name: str, section: str) -> str:
    """The address of ``section`` in ``docs/{name}.md``."""
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
    """The place within the text at ``path``: a regular expression or a grammar."""

    def __truediv__(self, token: str | int) -> Pointer:
        """The member or item ``token`` of the value at this place."""
        return Pointer(f"{self.path}/{escaped(str(token))}")

    def around(self, inner: Location | None) -> Pointer:
        """The place ``inner`` within the value or text at this place, as a place in the whole."""
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


def shown(value: object, most: int = 40) -> str:
    """``value`` as Python writes it, cut off after ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """``text`` without its middle, if it has more than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def _nearest(location: Location) -> Location:
    """``location``, or the nearest place around it whose pointer is not too long to be kept."""
    if isinstance(location, Pointer) and len(location.path) > MOST_CHARACTERS:
        return Pointer(location.path[: location.path.rfind("/", 0, MOST_CHARACTERS)])
    if isinstance(location, LineColumn) and location.inner is not None:
        return LineColumn(location.line, location.column, _nearest(location.inner))
    return location


def escaped(name: str) -> str:
    """``name`` as a reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


class Related(NamedTuple):
    """Another place of the specification that the refusal is about, and a text about it."""

    location: Location
    message: str


class SpecError(ValueError):
    """A refused specification. ``str()`` says what is wrong, what to do, and where. What users wrote is cut where it is
    long, because refusals are remembered, logged and sent.

    ``location`` is None if no part of the specification is at fault; ``keyword`` names the refused part. ``help`` is a
    remedy, or "". ``related``: the other places that the message is about, in the order of the message.
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
        message, help = shortened(printable(message)), shortened(printable(help))
        location = None if location is None else _nearest(location)
        what = f"{message}; {help}" if help else message
        super().__init__(what if location is None or not str(location) else f"{what} (at {location})")
        self.message = message
        self.location = location
        self.keyword = shortened(keyword, _MOST_OF_A_KEYWORD)
        self.code: Code = code or self.default_code
        self.help = help
        self.related = tuple(Related(_nearest(place), shortened(said)) for place, said in related[:_MOST_RELATED])

    @property
    def place(self) -> str:
        """``location`` as messages print it: "/a/b", "offset 7", "line 3, column 2"; "" for the whole and for None."""
        return "" if self.location is None else str(self.location)

    @property
    def pointer(self) -> str | None:
        """The JSON Pointer (RFC 6901) of ``location``; "" is the whole, None means a place that is not in JSON."""
        outer = self.location
        place = outer.inner if isinstance(outer, LineColumn) else outer
        return place.path if isinstance(place, Pointer) else None

    @property
    def span(self) -> Span | None:
        """The place in the text of a regular expression or a grammar; None if ``location`` is in neither."""
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
    """The specification is correct but cannot be enforced exactly, so it is refused; ``keyword`` names the reason."""

    default_code: ClassVar[Code] = "unsupported"


class BudgetExceededError(UnsupportedError):
    """The specification needs more work or memory than its budget; deterministic, never a time-out."""

    default_code: ClassVar[Code] = "too_large"


class TooFewTokensError(SpecError):
    """No text can be completed with the ``left`` tokens: ``needed`` are necessary, including the end token."""

    default_code: ClassVar[Code] = "too_few_tokens"

    def __init__(self, needed: int, left: int) -> None:
        super().__init__(
            f"at least {needed} tokens are needed to end the text, but only {left} are left", keyword="tokens_left"
        )
        self.needed = needed
        self.left = left

    def replaced(self: S, **changes: object) -> S:
        """No part of a specification is at fault, so there is nothing to replace."""
        return self


class SpecWarning(UserWarning):
    """The specification is enforced, but a part of it has no effect: a misspelt keyword, say."""


class EngineFault(RuntimeError):
    """An invariant of the engine does not hold: a bug in dotllm, never the caller's. Servers answer HTTP 500."""


def without_frames(error: E) -> E:
    """``error`` without its traceback and without the errors that led to it, for errors that are kept.

    A traceback keeps its frames alive with all their variables: guides, indexes, requests. A frame that holds the error
    forms a cycle with it. Only a full garbage collection frees such a cycle, and servers seldom run one.
    """
    chain: list[BaseException] = [error]
    while chain:
        link = chain.pop()
        chain += [before for before in (link.__cause__, link.__context__) if before is not None]
        link.__traceback__ = link.__cause__ = link.__context__ = None
    return error
