"""Where in a JSON text a position is: its JSON Pointer, and what stands around it. Reads JSON piece by piece."""

from __future__ import annotations

import json

from dotllm.errors import escaped

_WHITE_SPACE = " \t\r\n"
_MEANINGS = {
    "before a value": {
        "{": "an object", "[": "an array", '"': "a string", "-": "a number", "t": "true", "f": "false", "n": "null",
        "]": "the end of the array", **dict.fromkeys("0123456789", "a number"),
    },
    "before a key": {'"': "a key", "}": "the end of the object"},
    "after a key": {":": "the key's value"},
    "in a key": {'"': "the end of the key", "\\": "an escaped character"},
    "in a string": {'"': "the end of the string", "\\": "an escaped character"},
    "after a value": {",": "then the next one", "}": "the end of the object", "]": "the end of the array"},
}  # fmt: skip
_MEANINGS["in a word"] = _MEANINGS["after a value"]  # true, false, null
_MEANINGS["in a number"] = {**_MEANINGS["in a word"], ".": "a fraction", "e": "an exponent"}
_CLOSING = {"in a string": '"', "before a value": "null", "after a key": ":null", "in a key": '":null'}


class JsonPlace:
    """The place after all that was fed. What is fed need not be valid; the place is then a guess."""

    def __init__(self) -> None:
        self.where = "before a value"
        """A key of `_MEANINGS`."""
        self._inside: list[str | int] = []  # of each open object the key (or ""), of each open array the item's number
        self._key = ""
        self._escapes = False

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901) of the value here; in or before a key, of the object."""
        inside = self._inside[:-1] if self.where in ("in a key", "before a key") else self._inside
        return "".join(f"/{escaped(str(token))}" for token in inside)

    def meaning(self, char: str) -> str:
        """What ``char`` would begin or end here, or ""."""
        return _MEANINGS[self.where].get(char, "")

    def feed(self, data: bytes) -> None:
        """Go on after ``data``."""
        for char in data.decode("latin-1"):  # JSON's own characters are ASCII
            if self.where in ("in a key", "in a string"):
                self._in_string(char)
            elif char in _WHITE_SPACE:
                self.where = "after a value" if self.where in ("in a number", "in a word") else self.where
            else:
                self._structure(char)

    @property
    def closing(self) -> str:
        """The shortest text that makes what was fed whole, if it is JSON so far."""
        here = _CLOSING.get(self.where, "")
        return here + "".join("]" if isinstance(token, int) else "}" for token in reversed(self._inside))

    def _in_string(self, char: str) -> None:
        if char == '"' and not self._escapes:
            if self.where == "in a key":
                self._inside[-1:] = [_unquoted(self._key)]
            self.where = "after a key" if self.where == "in a key" else "after a value"
            return
        self._key += char
        self._escapes = char == "\\" and not self._escapes

    def _structure(self, char: str) -> None:
        if char in "{[":
            self._inside.append("" if char == "{" else 0)
            self.where = "before a key" if char == "{" else "before a value"
        elif char in "}]":
            del self._inside[-1:]
            self.where = "after a value"
        elif char == ",":
            last = self._inside[-1] if self._inside else ""
            self._inside[-1:] = [last + 1 if isinstance(last, int) else ""]
            self.where = "before a value" if isinstance(last, int) else "before a key"
        elif char == ":":
            self.where = "before a value"
        elif char == '"':
            self.where, self._key = "in a key" if self.where == "before a key" else "in a string", ""
        elif self.where == "before a value":
            self.where = "in a number" if char in "-0123456789" else "in a word"


def _unquoted(latin: str) -> str:
    raw = latin.encode("latin-1").decode(errors="replace")
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw
