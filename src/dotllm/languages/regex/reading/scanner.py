"""What all readers of a regular expression share: the text, the place in it, the flags in force, and the errors."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dotllm.errors import InvalidSpecError, Offset, UnsupportedError

Dialect = Literal["python", "ecma"]


class Flags(NamedTuple):
    """The flags in force at a place. ``ascii``/``unicode`` are set by ``(?a)``/``(?u)`` only."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False
    ascii: bool = False
    unicode: bool = False


class Scanner:
    """A text and the offset ``at`` which the methods of its subclasses read on from."""

    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        self.text = text
        self.at = 0
        self.dialect: Dialect = dialect
        self.flags = flags

    def invalid(self, what: str, at: int | None = None) -> InvalidSpecError:
        """The text is no regular expression."""
        offset = self.at if at is None else at
        return InvalidSpecError(
            f"invalid regular expression: {what}", location=Offset(offset), keyword="regex", code="syntax"
        )

    def unsupported(self, what: str, at: int, why: str = "is not regular") -> UnsupportedError:
        """``what``, which stands at offset ``at``, is refused, and ``why``."""
        message = f"unsupported in a regular expression: {what} ({self.text[at : at + 8]!r}) {why}"
        return UnsupportedError(message, location=Offset(at), keyword=what)

    def nul(self) -> str:
        """A NUL as an ordinary character; refused in ``python``."""
        if self.dialect == "python":
            raise self.invalid("a NUL character (write \\x00)", self.text.index("\0"))
        return "\0"
