"""How groups begin: what follows ``(``, with the flags that hold from there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dotllm.languages.regex.reading.classes import ClassScanner
from dotllm.languages.regex.reading.scanner import Dialect, Flags
from dotllm.languages.regex.syntax import Node, alt, seq

_FLAGS = re.compile(r"\?([aiLmsux]*)(?:-([imsx]+))?([:)])")
_NAME = re.compile(r"\?P?<([^\W\d]\w*)>")
_LOOKS = (("?=", (True, False)), ("?!", (True, True)), ("?<=", (False, False)), ("?<!", (False, True)))
_REFUSED_GROUPS = (
    ("?P=", "back-reference"),
    ("?P>", "recursion"),
    ("?&", "recursion"),
    ("?R", "recursion"),
    ("?(", "conditional"),
    ("?|", "branch reset"),
    ("*", "backtracking verb"),
)
_RECURSION = re.compile(r"\?[+-]?[0-9]+\)")
_FIELD = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "verbose", "a": "ascii", "u": "unicode"}


@dataclass
class Group:
    """An open group: what closes it, and the alternatives and parts read so far."""

    offset: int
    flags: Flags  # to go back to
    look: tuple[bool, bool] | None = None  # (ahead, negated)
    atomic: bool = False

    def __post_init__(self) -> None:
        self.choices: list[Node] = []
        self.parts: list[Node] = []

    def close(self) -> Node:
        """The body."""
        self.choices.append(seq(self.parts))
        return alt(self.choices)


class GroupScanner(ClassScanner):
    """Reads the beginnings of groups."""

    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        super().__init__(text, dialect, flags)
        self.inside_look = 0

    def open_group(self, start: int) -> Group | None:
        """Read what follows ``(``; None where no group was opened (comments, flags)."""
        text, flags = self.text, self.flags
        at = self.at = start + 1
        if not text.startswith("?", at) and not text.startswith("*", at):
            return Group(start, flags)
        if text.startswith("?:", at):
            self.at += 2
            return Group(start, flags)
        for opener, look in _LOOKS:
            if text.startswith(opener, at):
                self.at += len(opener)
                self.inside_look += 1
                return Group(start, flags, look)
        if text.startswith("?>", at):
            self.at += 2
            return Group(start, flags, atomic=True)
        named = _NAME.match(text, at)
        if named is not None:
            self.at = named.end()
            return Group(start, flags)
        if text.startswith("?#", at):
            end = text.find(")", at)
            if end < 0:
                raise self.invalid("missing ')' of the comment", start)
            self.at = end + 1
            return None
        set_flags = _FLAGS.match(text, at)
        if set_flags is not None:
            return self._set_flags(set_flags, start)
        for opener, what in _REFUSED_GROUPS:
            if text.startswith(opener, at):
                raise self.unsupported(what, start)
        if _RECURSION.match(text, at):
            raise self.unsupported("recursion", start)
        raise self.invalid("unknown extension of a group", start)

    def _set_flags(self, found: re.Match[str], start: int) -> Group | None:
        """``(?i-s:`` opens a group, ``(?i)`` holds to the end of the group it stands in."""
        on, off, closer = found.groups()
        if "L" in on:
            raise self.unsupported("locale flag", start, "depends on the machine")
        if "a" in on and "u" in on:
            raise self.invalid("flags 'a' and 'u' exclude each other", start)
        if set(on) & set(off or ""):
            raise self.invalid("a flag is turned on and off", start)
        before = self.flags
        changes = {_FIELD[flag]: True for flag in on} | {_FIELD[flag]: False for flag in off or ""}
        if "a" in on:
            changes["unicode"] = False
        if "u" in on:
            changes["ascii"] = False
        self.at = found.end()
        self.flags = before._replace(**changes)
        return Group(start, before) if closer == ":" else None
