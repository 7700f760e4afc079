"""Prints refusals as compilers do: message, file with line and column, the line with a caret under it, remedy.

The parts are those of rustc's diagnostics (https://rustc-dev-guide.rust-lang.org/diagnostics.html).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, NamedTuple

from dotllm.diagnosis.json_places import Place, places
from dotllm.errors import LineColumn, Location, Offset, Pointer, SpecError

# One character as written in a JSON string.
_CHARACTER = re.compile(
    r"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\.|.", re.DOTALL
)
WIDTH = 120
MOST_MARKS = 6
_BOLD, _RED, _YELLOW, _BLUE, _PLAIN = "\033[1m", "\033[1;31m", "\033[1;33m", "\033[1;34m", "\033[0m"


def wants_colour(stream: IO[str] | None = None) -> bool:
    """Whether ``stream`` (standard output) takes colours: a terminal does, unless NO_COLOR is set
    (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and (stream or sys.stdout).isatty()


class Mark(NamedTuple):
    """Characters of a text, and a label for them."""

    begin: int
    end: int
    label: str = ""


@dataclass
class SourceText:
    """A file that a person wrote: its name and its text. ``is_json``: places in it may be JSON Pointers."""

    name: str
    text: str
    is_json: bool = True

    def mark(self, location: Location | None, label: str = "") -> Mark | None:
        """The characters that ``location`` stands for; None if it is not in the text."""
        if isinstance(location, Offset):
            begin = min(location.characters, len(self.text))
            return Mark(begin, begin + 1, label)
        if isinstance(location, LineColumn):
            begin = self.offset(location.line, location.column)
            end = begin
            while end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_-"):
                end += 1
            return Mark(begin, max(end, begin + 1), label)
        if isinstance(location, Pointer) and self.is_json:
            place = self._places.get(location.path)
            if place is not None:
                at = self._inside(place, location.inner)
                return Mark(place.begin, place.end, label) if at is None else Mark(at, at + 1, label)
        return None

    def _inside(self, place: Place, inner: Offset | LineColumn | None) -> int | None:
        """The characters for ``inner``, a place in the JSON string at ``place``: in its value, or in its key if the
        value is not a string."""
        if inner is None:
            return None
        at = place.value if self.text[place.value] == '"' else place.begin
        if isinstance(inner, LineColumn):
            content, _ = json.JSONDecoder(strict=False).raw_decode(self.text, at)
            characters = SourceText("", content).offset(inner.line, inner.column)
        else:
            characters = inner.characters
        written = _CHARACTER.finditer(self.text, at + 1, place.end - 1)
        return next((match.start() for number, match in enumerate(written) if number == characters), None)

    @cached_property
    def _places(self) -> dict[str, Place]:
        return places(self.text)

    def offset(self, line: int, column: int) -> int:
        """The number of characters before a place; ``line`` and ``column`` count from 1."""
        begin = 0
        for _ in range(line - 1):
            begin = self.text.find("\n", begin) + 1
        return begin + column - 1

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The line and column of the character at ``offset``; both count from 1."""
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)


def error_frame(error: SpecError, source: SourceText, *, colour: bool = False) -> str:
    """The frame of ``error``, which refuses ``source``."""
    named = [(error.location, ""), *error.related] if error.location is not None else list(error.related)
    marks = [mark for location, label in named if (mark := source.mark(location, label)) is not None]
    marks = [mark._replace(label="") if mark.label == source.text[mark.begin : mark.end] else mark for mark in marks]
    lines = [head("error", error.code, error.message, colour)]
    lines += code_frame(source, marks[:MOST_MARKS], error.pointer, colour=colour)
    if not marks and error.place:
        lines.append(f"  --> {source.name}  ({error.place})")
    elif not marks:
        lines.append(f"  --> {source.name}")
    if error.help:
        lines.append(f"  = help: {error.help}")
    lines.append(f"  = see: dotllm explain {error.code}")
    return "\n".join(lines)


def head(level: str, code: str, message: str, colour: bool) -> str:
    """The first line: "error[unsatisfiable]: …"."""
    shown = f"{level}[{code}]" if code else level
    if not colour:
        return f"{shown}: {message}"
    return f"{_RED if level == 'error' else _YELLOW}{shown}{_PLAIN}{_BOLD}: {message}{_PLAIN}"


def warning_frame(
    message: str, source: SourceText, pointer: str, *, level: str = "warning", colour: bool = False
) -> str:
    """The frame of a warning about the value at ``pointer``; ``level`` is its first word."""
    mark = source.mark(Pointer(pointer))
    return "\n".join(
        [head(level, "", message, colour), *code_frame(source, [mark] if mark else [], pointer, colour=colour)]
    )


def code_frame(
    source: SourceText, marks: Sequence[Mark], pointer: str | None = None, *, colour: bool = False
) -> list[str]:
    """The lines of ``source`` with carets under ``marks``, after a line with the place of the first mark."""
    if not marks:
        return []
    line, column = source.line_and_column(marks[0].begin)
    place = f"{source.name}:{line}:{column}" + (f"  ({pointer})" if pointer else "")
    by_line: dict[int, list[Mark]] = {}
    for mark in marks:
        by_line.setdefault(source.line_and_column(mark.begin)[0], []).append(mark)
    margin = len(str(max(by_line)))

    def bar(text: str) -> str:
        return f"{_BLUE}{text}{_PLAIN}" if colour else text

    out = [f"{' ' * margin}{bar('-->')} {place}"]
    before = 0
    for number in sorted(by_line):
        if before and number > before + 1:
            out.append(bar(f"{'…':<{margin}} |"))
        before = number
        text, begin = _line(source, number, min(mark.begin for mark in by_line[number]))
        out.append(f"{bar(f'{number:>{margin}} |')} {text}")
        out += [f"{bar(' ' * margin + ' |')} {carets}" for carets in _carets(by_line[number], begin, len(text))]
    return out


def _line(source: SourceText, number: int, first: int) -> tuple[str, int]:
    """The shown part of line ``number`` (around ``first``, if the line is long), and the offset where that part
    begins."""
    begin = source.text.rfind("\n", 0, first) + 1
    end = source.text.find("\n", first)
    end = len(source.text) if end < 0 else end
    if end - begin > WIDTH:
        begin = max(begin, first - WIDTH // 3)
        end = min(end, begin + WIDTH)
    return source.text[begin:end].replace("\t", " "), begin


def _carets(marks: Sequence[Mark], begin: int, width: int) -> Iterator[str]:
    """Lines of carets: one for all marks without a label, and one for each mark with a label."""
    plain = [mark for mark in marks if not mark.label]
    for row in ([plain] if plain else []) + [[mark] for mark in marks if mark.label]:
        line = ""
        for mark in sorted(row):
            at = mark.begin - begin
            if 0 <= at <= width and at >= len(line):
                line = line.ljust(at) + "^" * max(1, min(mark.end - begin, width) - at)
        label = row[-1].label
        yield f"{line} {label}".rstrip()
