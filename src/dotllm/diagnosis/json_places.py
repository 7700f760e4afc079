"""Finds values in a JSON text: from a JSON Pointer to the characters of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dotllm.errors import escaped

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
_SCALAR = re.compile(r'[^\s,\]}"{\[]+')


class Place(NamedTuple):
    """The characters of a value, from ``value`` to ``end``; ``begin`` is where its key begins, if it has one."""

    begin: int
    value: int
    end: int


class _Open(NamedTuple):
    """An array or object that has not ended yet."""

    pointer: str
    begin: int
    value: int
    is_object: bool


def last_begun(text: str) -> str:
    """The pointer of the value that began last in ``text``, the beginning of a JSON text."""
    scan = _Scan(text)
    scan.run()
    return scan.last


def value_at(text: str, offset: int) -> str:
    """The pointer of the value to which the character at ``offset`` belongs; between values, of the value before it."""
    before, with_it = last_begun(text[:offset]), last_begun(text[: offset + 1])
    return with_it if with_it.startswith(f"{before}/") else before


def places(text: str) -> dict[str, Place]:
    """The place of each value of the JSON ``text``, by its pointer; for a key that occurs twice, the last place. If the
    text is not JSON, only the values before the error."""
    return _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.places: dict[str, Place] = {}
        self.open: list[_Open] = []
        self.counts: list[int] = []
        self.last = ""
        """The pointer of the value that began last, or of the object or array in which the text continues."""

    def run(self) -> dict[str, Place]:
        try:
            self._value("", self._skip())
            while self.open:
                self._step()
        except (IndexError, ValueError):  # the text is not JSON from here on
            pass
        return self.places

    def _skip(self) -> int:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _step(self) -> None:
        """Read one member, item, comma or end of the innermost array or object."""
        inner = self.open[-1]
        begin = self._skip()
        sign = self.text[begin]
        self.last = inner.pointer
        if sign in "]}":
            self.at += 1
            self.open.pop()
            self.counts.pop()
            self.places[inner.pointer] = Place(inner.begin, inner.value, self.at)
        elif sign == ",":
            self.at += 1
        elif inner.is_object:
            name, self.at = _string(self.text, begin)
            if self.text[self._skip()] != ":":
                raise ValueError("a colon is missing")
            self.at += 1
            self._skip()
            self._value(f"{inner.pointer}/{escaped(name)}", begin)
        else:
            self.counts[-1] += 1
            self._value(f"{inner.pointer}/{self.counts[-1] - 1}", begin)

    def _value(self, pointer: str, begin: int) -> None:
        value, self.last = self.at, pointer
        sign = self.text[value]
        if sign in "[{":
            self.at += 1
            self.open.append(_Open(pointer, begin, value, sign == "{"))
            self.counts.append(0)
            self.places[pointer] = Place(begin, value, value + 1)  # until its end is found
            return
        if sign == '"':
            _, self.at = _string(self.text, value)
        else:
            match = _SCALAR.match(self.text, value)
            if match is None:
                raise ValueError("no value")
            self.at = match.end()
        self.places[pointer] = Place(begin, value, self.at)


def _string(text: str, at: int) -> tuple[str, int]:
    """The string that begins at ``at``, and its end."""
    if text[at] != '"':
        raise ValueError("no string")
    name, end = _DECODER.raw_decode(text, at)
    return name, end


# Names a tool's refused schema by its place in the request, not in the structural tag that vLLM makes from tools.
#
# ``/format/tags/2/content/json_schema/properties/a/type`` is a place in a document that the user has never seen. The
# tool is found by its schema, which is the same in the tag and in the request. (If two tools have the same schema, the
# first one is named: both are refused.)

SCHEMA_FIELDS = (
    "response_format.json_schema.schema", "structured_outputs.json", "text.format.schema",
    "output_config.format.schema",
)  # fmt: skip
"""The fields with a format's schema, in all APIs."""
_MESSAGE = re.compile(r"(.*) \(at (/.*)\)", re.DOTALL)
"""The place as `dotllm.errors.SpecError` writes it; the engine sends only the text."""


Described = tuple[str, str, dict[str, Any]]
"""The name of a tool, the place of its schema or grammar in the request, and the schema or grammar as in the tag."""


def located(
    message: str,
    tag: str,
    tools: list[object],
    grammars: Iterable[Described] = (),
    *,
    of_anthropic: bool = False,
    own: str = "",
) -> str:
    """The message of a refusal of ``tag``, with the place in the request if a tool, or the format next to them, is at
    fault.

    ``grammars``: those of custom tools. ``of_anthropic``: whether the request is one of Anthropic's API, which has its
    schemas at other places. ``own``: the field of the format that is part of the tag (`openai_error.param`).
    """
    from dotllm.languages.json_schema.reading.subschemas import below

    match = _MESSAGE.fullmatch(message)
    if match is None:
        return message
    schemas = [*_schemas(tools, of_anthropic), *grammars]
    part = json.loads(tag)
    rest = match[2].split("/")[1:]
    while rest:
        step = below(part, rest.pop(0))
        if step is None:
            break
        (part,) = step
        for name, place, schema in schemas:
            # (the tag's schema may have a type and a name in addition)
            if isinstance(part, dict) and _bare(part) == _bare(schema):
                return f"tool {name!r}: {match[1]} (at {'/'.join([place, *rest])})"
    _, mark, inside = match[2].partition("/json_schema/")
    if mark and own in SCHEMA_FIELDS:  # no tool's, so it is the request's own
        field = "output_config.format.schema" if of_anthropic else own
        return f"{match[1]} (at /{field.replace('.', '/')}/{inside})"
    return message


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in schema.items() if name not in ("type", "$id")}


def _schemas(tools: list[object], of_anthropic: bool, place: str = "/tools") -> Iterator[Described]:
    for i, tool in enumerate(tools):
        tool_place = f"{place}/{i}"
        if isinstance(inner := getattr(tool, "tools", None), list):  # a namespace of Responses
            yield from _schemas(inner, of_anthropic, f"{tool_place}/tools")
        function = getattr(tool, "function", None)
        where = "input_schema" if of_anthropic else "parameters" if function is None else "function/parameters"
        schema = getattr(function or tool, "parameters", None)
        if isinstance(schema, dict):
            yield str(getattr(function or tool, "name", "")), f"{tool_place}/{where}", schema
