"""Why nothing satisfies a schema: the smallest place that must be satisfied and cannot be, and the keywords there.

The grammar shows that nothing satisfies the schema, but not which keyword is at fault. So the schema is read once more,
from its root inwards. A part that every document needs (a required property, a branch of ``allOf``) and that nothing
satisfies is the next place. Where there is no such part, the keywords at fault are those without which something would
satisfy the schema. All of this is emitted into the failed grammar, under the same budgets; when one is used up, the
refusal names the place found so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dotllm.errors import InvalidSpec, Pointer, SpecError
from dotllm.grammar.analysis import analyse
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS
from dotllm.languages.json_schema.reading.document import Scope, ScopedSchema
from dotllm.languages.json_schema.reading.keyword_groups import REFERENCES

MAX_DEPTH = 50
MAX_LOOKED_AT = 100  # parts of one schema
MAX_SHOWN = 40  # characters of a value

Part = tuple[Any, Scope, Pointer, str]
"""A sub-schema, its scope, its JSON Pointer and the keyword that asks for it."""


def unsatisfiable(emitter: Emitter, schema: Any, scope: Scope) -> InvalidSpec:
    """The refusal of a schema that nothing satisfies; ``emitter`` has emitted it."""
    search = _Search(emitter)
    part: Part = (schema, scope, Pointer(), "")
    seen: set[int] = set()
    reason, keyword, pointer = "", "", Pointer()
    try:
        for _ in range(MAX_DEPTH):
            schema, scope, pointer, keyword = part
            reason = ""
            if schema is False:
                reason = "false allows no value"
            if not isinstance(schema, dict):
                break
            if id(schema) in seen:
                reason = "what it requires leads back to it without end"
                break
            seen.add(id(schema))
            scope = emitter.keywords.document.enter(schema, scope)
            inner = search.failing_part(schema, scope, pointer)
            if inner is None:
                found, reason = search.failing_keywords(schema, scope)
                if found:
                    keyword, pointer = found, pointer / found
                break
            part = inner
    except (SpecError, RecursionError):  # it cannot be found out within the budgets
        pass
    if reason and emitter.options.excludes:
        reason += ", without the excluded texts"
    message = "nothing satisfies the schema" + (f": {reason}" if reason else "")
    return InvalidSpec(message, location=pointer, keyword=keyword)


class _Search:
    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.kept: list[Any] = []  # schemas are known by their identity

    def failing(self, places: Iterable[ScopedSchema]) -> list[bool]:
        """Which sub-schemas nothing satisfies."""
        found = []
        for schema, scope in places:
            self.kept.append(schema)
            found.append(self.emitter.expression(self.emitter.keywords.node(schema, scope)))
        derives = analyse(self.emitter.grammar).derives
        return [not derives[expression] for expression in found]

    def failing_part(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> Part | None:
        """A sub-schema that must be satisfied and cannot be."""
        parts = [*self._needed(schema, scope, pointer)][:MAX_LOOKED_AT]
        failing = self.failing(part[:2] for part in parts)
        return next((part for part, fails in zip(parts, failing, strict=True) if fails), None)

    def _needed(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> Iterator[Part]:
        relevant = ASSERTIONS[scope.dialect].intersection(schema)
        document = self.emitter.keywords.document
        for keyword in REFERENCES:
            if keyword in relevant:
                target, inner = document.follow(keyword, schema[keyword], scope)
                there = document.pointer(target) if isinstance(target, dict) else pointer / keyword
                yield target, inner, there, keyword
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in relevant and (keyword == "allOf" or len(schema[keyword]) == 1):
                for i, child in enumerate(schema[keyword]):
                    yield child, scope, pointer / keyword / i, keyword
        if schema.get("type") == "object":
            properties = schema.get("properties", {})
            for name in schema.get("required", ()):
                if name in properties:
                    yield properties[name], scope, pointer / "properties" / name, "properties"
        elif schema.get("type") == "array":
            least, items = int(schema.get("minItems", 0)), schema.get("items", True)
            tuples = "prefixItems" if "prefixItems" in relevant else "items" if isinstance(items, list) else ""
            prefix = schema[tuples] if tuples else []
            for i, child in enumerate(prefix[:least]):
                yield child, scope, pointer / tuples / i, tuples
            if least > len(prefix) and tuples != "items":
                yield items, scope, pointer / "items", "items"
            if "contains" in relevant and schema.get("minContains", 1):
                yield schema["contains"], scope, pointer / "contains", "contains"

    def failing_keywords(self, schema: dict[str, Any], scope: Scope) -> tuple[str, str]:
        """The keyword at fault, and in which way: with others, it may be."""
        schema = {name: value for name, value in schema.items() if name not in ("$id", "id")}
        if schema.get("type") == "object" and ("additionalProperties" in schema or scope.closes):
            declared = schema.get("properties", {})
            names = [name for name in schema.get("required", ()) if name not in declared][:MAX_LOOKED_AT]
            failing = self.failing(({**schema, "required": [name]}, scope) for name in names)
            missing = [name for name, fails in zip(names, failing, strict=True) if fails]
            if missing and not self.failing([({**schema, "required": []}, scope)])[0]:
                why = "additionalProperties allows" if "additionalProperties" in schema else "the schema names"
                return "required", f"{_shown(missing[0])} is required, and {why} no such property"
        relevant = [name for name in schema if name in ASSERTIONS[scope.dialect]]
        without = [{other: value for other, value in schema.items() if other != name} for name in relevant]
        failing = self.failing((smaller, scope) for smaller in without)
        at_fault = [name for name, fails in zip(relevant, failing, strict=True) if not fails]
        if not at_fault:  # there is more than one reason: the first that needs no other keyword
            failing = self.failing(({name: schema[name]}, scope) for name in relevant)
            at_fault = [name for name, fails in zip(relevant, failing, strict=True) if fails][:1]
        if len(at_fault) > 2 and "type" in at_fault:  # values of other types would do, of course
            at_fault.remove("type")
        if not at_fault:
            return "", ""
        keyword = next((name for name in at_fault if name != "type"), "type")
        shown = [f'"{name}": {_shown(schema[name])}' for name in at_fault]
        if len(shown) == 1:
            return keyword, f"no value satisfies {shown[0]}"
        return keyword, f"no value satisfies {', '.join(shown[:-1])} and {shown[-1]} together"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=_number)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _number(value: Any) -> Any:
    return int(value) if value == int(value) else float(value)
