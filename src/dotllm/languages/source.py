"""The text of a grammar, places in it as lines and columns, and what the readers of both notations share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from dotllm.errors import Code, InvalidSpecError, LineColumn, Offset, Pointer, SpecError, UnsupportedError
from dotllm.suggestions import did_you_mean

_HINTS = {
    "'": "strings are written in double quotes",
    '"': "this string does not end on its line; a line break in it is written \\n",
    **dict.fromkeys("“”„‘’«»", "strings are written in straight double quotes"),
    "\ufeff": "this is a byte order mark; leave it out",
}
"""What to write instead of a character with which nothing begins, in both notations."""


class Source:
    """Turns offsets into lines and columns, the locations in errors about grammars."""

    def __init__(self, text: str) -> None:
        self.text = text

    def location(self, at: int) -> LineColumn:
        """The place of the character at offset ``at``."""
        return LineColumn(self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def invalid(
        self, message: str, at: int, keyword: str = "", code: Code = "syntax", help: str = ""
    ) -> InvalidSpecError:
        """The refusal of the text at ``at``."""
        return InvalidSpecError(message, location=self.location(at), keyword=keyword, code=code, help=help)

    def unexpected(self, at: int, hints: Mapping[str, str]) -> InvalidSpecError:
        """The refusal of a character with which nothing begins; ``hints``: what to write instead, in this notation."""
        character = self.text[at]
        hint = hints.get(character) or _HINTS.get(character, "")
        if not hint and character.isspace():
            hint = "only ordinary spaces, tabs and line breaks separate words"
        return self.invalid(f"unexpected {character!r}" + (f": {hint}" if hint else ""), at)

    def without_first_rule(self, first: str, defined: Mapping[str, int], other: str, notation: str) -> InvalidSpecError:
        """The refusal of a grammar that lacks the rule ``first``, with which answers begin.

        ``defined``: the rules and their places. ``other``: the name of the first rule in the other notation, whose
        rules look like ``notation``.
        """
        name = other if other in defined else next(iter(defined), "")
        help = f"rename {name!r} to {first!r}, if answers begin with it" if name else ""
        if name == other:
            help = f"rename {other!r} to {first!r}, or define every rule as in {notation}"
        where = defined.get(name, 0)
        return self.invalid(f"the grammar has no rule {first!r}", where, first, "unknown_rule", help)

    def undefined(self, what: str, name: str, at: int, known: Iterable[str]) -> InvalidSpecError:
        """The refusal of ``name`` at ``at``, which is not among ``known``."""
        return InvalidSpecError(
            f"{what}{name} is not defined",
            location=self.location(at),
            keyword=name,
            code="unknown_rule",
            help=did_you_mean(name, known),
        )

    def unsupported(self, message: str, at: int, keyword: str, help: str = "") -> UnsupportedError:
        """The refusal of a construct at ``at`` that is correct, but cannot be enforced."""
        return UnsupportedError(message, location=self.location(at), keyword=keyword, help=help)

    @contextmanager
    def inside(self, at: int, first: int | None = None) -> Iterator[None]:
        """A context that gives refusals of a text embedded at ``at`` (a schema, a regular expression) their place in
        the grammar.

        ``first``: the place in the grammar of offset 0 of an expression that is written literally there.

        Raises:
            SpecError: the refusal raised within, with its place in the grammar.
        """
        try:
            yield
        except SpecError as error:
            inner = error.location
            if isinstance(inner, LineColumn):
                raise
            location = self.location(at)
            if first is not None and isinstance(inner, Offset):
                location = self.location(max(at, first + inner.characters))
            elif inner != Pointer():
                location = replace(location, inner=inner)
            raise error.at(location) from error


class Token(NamedTuple):
    """``kind`` is a group of the notation's expression for tokens, the sign itself, or "END"."""

    kind: str
    text: str
    at: int
    value: Any = None  # the JSON value that follows a directive of Lark


MAX_COUNT = 2**30 - 1  # of repetitions
OPERATORS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class TokenReader:
    """Reads tokens, the last of which is END, from first to last."""

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.i = 0

    @property
    def token(self) -> Token:
        """The next token, not yet consumed."""
        return self.tokens[self.i]

    def expect(self, kind: str, what: str) -> Token:
        """Consume a token of this kind. Raises InvalidSpecError for another."""
        token = self.token
        if token.kind != kind:
            raise self.unexpected(what)
        self.i += 1
        return token

    def unexpected(self, what: str) -> InvalidSpecError:
        """The refusal of the next token, in whose place ``what`` belongs."""
        token = self.token
        ends = {"END": "the end of the grammar", "NEWLINE": "the end of the line"}
        return self.source.invalid(f"expected {what}, found {ends.get(token.kind, repr(token.text))}", token.at)

    def count(self) -> int:
        """A number of repetitions. Raises InvalidSpecError if it is too large."""
        token = self.expect("NUMBER", "a number")
        if not token.text.isdigit():
            raise self.source.invalid(f"{token.text} is not a number of repetitions", token.at)
        if len(token.text) > 10 or int(token.text) > MAX_COUNT:
            raise self.source.invalid(f"{token.text} repetitions are too many", token.at)
        return int(token.text)

    def counts(self) -> tuple[int, int | None]:
        """``{n}``, ``{n,}``, ``{,m}`` or ``{n,m}``."""
        at = self.expect("{", "'{'").at
        low = 0 if self.token.kind == "," else self.count()
        high: int | None = low
        if self.token.kind == ",":
            self.i += 1
            high = self.count() if self.token.kind == "NUMBER" else None
        self.expect("}", "'}'")
        return self.in_order(low, high, at)

    def in_order(self, low: int, high: int | None, at: int) -> tuple[int, int | None]:
        """Both counts. Raises InvalidSpecError if the first is larger."""
        if high is not None and high < low:
            raise self.source.invalid(f"the minimum count {low} exceeds the maximum {high}", at)
        return low, high
