"""Where the values of a JSON text stand: from a JSON Pointer to characters of the text."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from dotllm.errors import escaped

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
_SCALAR = re.compile(r'[^\s,\]}"{\[]+')


class Place(NamedTuple):
    """Characters of a text: of a value from ``value`` to ``end``; ``begin`` is where its key begins, if it has one."""

    begin: int
    value: int
    end: int


class _Open(NamedTuple):
    """An array or object whose end has not come."""

    pointer: str
    begin: int
    value: int
    is_object: bool


def last_begun(text: str) -> str:
    """The pointer of the value that ``text``, the beginning of a JSON text, has begun last."""
    scan = _Scan(text)
    scan.run()
    return scan.last


def value_at(text: str, offset: int) -> str:
    """The pointer of the value that the character at ``offset`` belongs to; between values, of the one before it."""
    before, with_it = last_begun(text[:offset]), last_begun(text[: offset + 1])
    return with_it if with_it.startswith(f"{before}/") else before


def places(text: str) -> dict[str, Place]:
    """The place of each value of the JSON ``text`` by its pointer; of a key that comes twice, the last one's. A text
    that is no JSON gives what stands before its fault."""
    return _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[str, Place] = {}
        self.open: list[_Open] = []
        self.counts: list[int] = []
        self.last = ""
        """The pointer of the value that was begun last, or of the object or array in which the text has gone on."""

    def run(self) -> dict[str, Place]:
        try:
            self._value("", self._skip())
            while self.open:
                self._step()
        except (IndexError, ValueError):  # it is no JSON from here on
            pass
        return self.found

    def _skip(self) -> int:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _step(self) -> None:
        """One member, item or end of the innermost array or object."""
        inner = self.open[-1]
        here = self._skip()
        sign = self.text[here]
        self.last = inner.pointer
        if sign in "]}":
            self.at += 1
            self.open.pop()
            self.counts.pop()
            self.found[inner.pointer] = Place(inner.begin, inner.value, self.at)
        elif sign == ",":
            self.at += 1
        elif inner.is_object:
            name, self.at = _string(self.text, here)
            if self.text[self._skip()] != ":":
                raise ValueError("a colon is missing")
            self.at += 1
            self._skip()
            self._value(f"{inner.pointer}/{escaped(name)}", here)
        else:
            self.counts[-1] += 1
            self._value(f"{inner.pointer}/{self.counts[-1] - 1}", here)

    def _value(self, pointer: str, begin: int) -> None:
        value, self.last = self.at, pointer
        sign = self.text[value]
        if sign in "[{":
            self.at += 1
            self.open.append(_Open(pointer, begin, value, sign == "{"))
            self.counts.append(0)
            self.found[pointer] = Place(begin, value, value + 1)  # until its end is found
            return
        if sign == '"':
            _, self.at = _string(self.text, value)
        else:
            match = _SCALAR.match(self.text, value)
            if match is None:
                raise ValueError("no value")
            self.at = match.end()
        self.found[pointer] = Place(begin, value, self.at)


def _string(text: str, at: int) -> tuple[str, int]:
    """The string that begins at ``at``, and where it ends."""
    if text[at] != '"':
        raise ValueError("no string")
    name, end = _DECODER.raw_decode(text, at)
    return name, end
