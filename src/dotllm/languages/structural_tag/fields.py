"""Reading the fields of a format: every mistake is an `InvalidSpecError` with its JSON Pointer, unknown fields
included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import InvalidSpecError, Pointer
from dotllm.languages.surrogates import is_unicode
from dotllm.suggestions import did_you_mean

_MISSING = object()


class Fields:
    """One JSON object of the specification, read field by field; `finish` refuses the fields that are left."""

    def __init__(self, value: Any, pointer: Pointer) -> None:
        if not isinstance(value, Mapping):
            raise InvalidSpecError(f"an object is expected here, not {type(value).__name__}", location=pointer)
        self._value = value
        self._read: set[str] = set()
        self.pointer = pointer

    def at(self, name: str) -> Pointer:
        """The JSON Pointer of a field."""
        return self.pointer / name

    def has(self, name: str) -> bool:
        """Whether a field is there (null counts as absent)."""
        return self._value.get(name) is not None

    def any(self, name: str, default: Any = _MISSING) -> Any:
        """A field of any type.

        Raises:
            InvalidSpecError: the field is missing, or no Unicode text.
        """
        self._read.add(name)
        value = self._value.get(name)
        if value is None:
            if default is _MISSING:
                raise InvalidSpecError(f"the field {name!r} is missing", location=self.pointer, keyword=name)
            return default
        if isinstance(value, str):
            self._check_text(name, value, self.at(name))
        return value

    def _check_text(self, name: str, text: str, pointer: Pointer) -> None:
        if not is_unicode(text):
            raise InvalidSpecError(
                f"{name!r} holds half of a surrogate pair, which no Unicode text contains",
                location=pointer,
                keyword=name,
            )

    def _of(self, name: str, kind: type, what: str, default: Any) -> Any:
        value = self.any(name, default)
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise InvalidSpecError(f"{name!r} must be {what}", location=self.at(name), keyword=name)
        return value

    def string(self, name: str, default: Any = _MISSING) -> str:
        """A string."""
        found: str = self._of(name, str, "a string", default)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        found: bool = self._of(name, bool, "true or false", default)
        return found

    def count(self, name: str, default: Any = _MISSING, minimum: int = 0) -> Any:
        """An integer not below ``minimum``.

        Raises:
            InvalidSpecError: the value is no integer, or out of range.
        """
        found = self._of(name, int, "an integer", default)
        if found is not default and not minimum <= found < 2**30:
            raise InvalidSpecError(f"{name!r} is out of range", location=self.at(name), keyword=name)
        return found

    def items(self, name: str, default: Any = _MISSING) -> list[Any]:
        """A list."""
        found: list[Any] = self._of(name, list, "a list", default)
        return found

    def strings(self, name: str) -> list[str]:
        """A list of non-empty strings; absent: none.

        Raises:
            InvalidSpecError: the value is no such list.
        """
        found = self.items(name, [])
        for i, text in enumerate(found):
            if not isinstance(text, str) or not text:
                raise InvalidSpecError(
                    f"{name!r} must hold non-empty strings", location=self.at(name) / i, keyword=name
                )
            self._check_text(name, text, self.at(name) / i)
        return found

    def finish(self) -> None:
        """Refuse the fields that are left: ignoring one could mean not enforcing it.

        Raises:
            InvalidSpecError: a field is left.
        """
        for name in self._value:
            if name not in self._read and self._value[name] is not None:
                raise InvalidSpecError(
                    f"unknown field {name!r}",
                    location=self.at(str(name)),
                    keyword=str(name),
                    code="unknown_field",
                    help=did_you_mean(str(name), self._read),
                )
