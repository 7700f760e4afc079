"""The text of a grammar somebody wrote, and where in it something stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dotllm.errors import InvalidSpec, SpecError, Unsupported


class Source:
    """Turns offsets into "line 3, column 7", which is the ``pointer`` of the errors about grammars."""

    def __init__(self, text: str) -> None:
        self.text = text

    def pointer(self, at: int) -> str:
        line = self.text.count("\n", 0, at) + 1
        return f"line {line}, column {at - (self.text.rfind(chr(10), 0, at) + 1) + 1}"

    def invalid(self, message: str, at: int, keyword: str = "") -> InvalidSpec:
        return InvalidSpec(message, pointer=self.pointer(at), keyword=keyword)

    def unsupported(self, message: str, at: int, keyword: str) -> Unsupported:
        return Unsupported(message, pointer=self.pointer(at), keyword=keyword)

    @contextmanager
    def inside(self, at: int, first: int | None = None) -> Iterator[None]:
        """Refusals of what is embedded at ``at`` (a schema, a regular expression) say where in the grammar that is.

        ``first``: where the offset 0 of an expression is that stands in the grammar as it is.
        """
        try:
            yield
        except SpecError as error:
            inner = error.pointer
            if inner.startswith("line "):
                raise
            place = self.pointer(at)
            if first is not None and inner.startswith("offset "):
                place = self.pointer(max(at, first + int(inner.removeprefix("offset "))))
            elif inner not in ("", "/"):
                place = f"{place}: {inner}"
            raise type(error)(error.message, pointer=place, keyword=error.keyword) from error
