"""Finds repeated sub-schemas, so that each is read once.

Generated schemas (Kubernetes', OpenAPI's) repeat a sub-schema dozens of times with different descriptions. Equal
content in one scope has one meaning, so the first occurrence stands for all. Two dictionaries are equal if they have
the same entries in the same order (the order of properties counts), apart from annotations that are texts.
"""

from __future__ import annotations

from typing import Any

_ANNOTATIONS = frozenset({"description", "title", "$comment", "markdownDescription"})
_NAMES = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"})
"""A sub-schema with one of these can be referred to, or changes what references mean: it equals only itself."""
_VALUES = frozenset({"enum", "const"})
_SPECIAL = _ANNOTATIONS | _NAMES | _VALUES

_MAX_DEPTH = 100


class Repetitions:
    """The sub-schemas of one document, by content."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._number_of: dict[int, int] = {}  # by the id of a dictionary or list …
        self._kept: list[object] = []  # … which must live on, so that no other gets its id
        self._first: dict[int, dict[str, Any]] = {}

    def first(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The first sub-schema read that says what ``schema`` says."""
        return self._first.setdefault(self._number(schema, 0), schema)

    def _number(self, value: dict[str, Any] | list[Any], depth: int) -> int:
        """A number that is equal for equal contents."""
        known = self._number_of.get(id(value))
        if known is not None:
            return known
        key: object
        if depth > _MAX_DEPTH:
            key = object()
        elif isinstance(value, list):
            key = (None, *[self._part(item, depth) for item in value])
        else:
            key = self._of_dictionary(value, depth)
        self._kept.append(value)
        number = self._number_of[id(value)] = self._numbers.setdefault(key, len(self._numbers))
        return number

    def _of_dictionary(self, value: dict[str, Any], depth: int) -> object:
        parts: list[object] = []
        for name, part in value.items():
            if name in _SPECIAL:
                if name in _NAMES and isinstance(part, (str, bool)):
                    return object()
                if name in _VALUES:
                    parts += name, repr(part)
                    continue
                if name in _ANNOTATIONS and type(part) is str:
                    continue
            parts += name, self._part(part, depth)
        return tuple(parts)

    def _part(self, part: Any, depth: int) -> object:
        if type(part) is str:
            return part
        return self._number(part, depth + 1) if isinstance(part, (dict, list)) else (type(part), part)
