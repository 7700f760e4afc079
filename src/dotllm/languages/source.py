"""The text of a grammar, and places in it as lines and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dotllm.errors import Code, InvalidSpecError, LineColumn, Offset, Pointer, SpecError, UnsupportedError
from dotllm.suggestions import did_you_mean


class Source:
    """Turns offsets into lines and columns, which are the locations of the errors about grammars."""

    def __init__(self, text: str) -> None:
        self.text = text

    def location(self, at: int) -> LineColumn:
        """The place of the character at offset ``at``."""
        return LineColumn(self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def invalid(self, message: str, at: int, keyword: str = "", code: Code = "syntax") -> InvalidSpecError:
        """The refusal of what stands at ``at``."""
        return InvalidSpecError(message, location=self.location(at), keyword=keyword, code=code)

    def undefined(self, what: str, name: str, at: int, known: Iterable[str]) -> InvalidSpecError:
        """The refusal of a ``name`` that stands at ``at`` and is none of ``known``."""
        return InvalidSpecError(
            f"{what}{name} is not defined",
            location=self.location(at),
            keyword=name,
            code="unknown_rule",
            help=did_you_mean(name, known),
        )

    def unsupported(self, message: str, at: int, keyword: str) -> UnsupportedError:
        """The refusal of what is correct at ``at`` and cannot be enforced."""
        return UnsupportedError(message, location=self.location(at), keyword=keyword)

    @contextmanager
    def inside(self, at: int, first: int | None = None) -> Iterator[None]:
        """Refusals of what is embedded at ``at`` (a schema, a regular expression) say where in the grammar that is.

        ``first``: where the offset 0 of an expression is that stands in the grammar as it is.

        Raises:
            SpecError: what was raised within, with its place in the grammar.
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
