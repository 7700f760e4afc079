"""Why nothing satisfies a schema: the innermost part that must be satisfied and cannot be, and the keywords at fault.

The grammar shows that nothing satisfies the schema, but not which keyword is at fault. So this module reads the schema
again, from its root inwards. It descends into a part that every document needs (a required property, a branch of
``allOf``) and that nothing satisfies. If there is no such part, the keywords at fault are those without which something
would satisfy the schema. All of this is emitted into the failed grammar, under the same budgets; when a budget is used
up, the refusal names the place found so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dotllm.errors import InvalidSpecError, Pointer, Related, SpecError
from dotllm.grammar.analysis import analyse
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, REFERENCES
from dotllm.languages.json_schema.reading.document import Scope, ScopedSchema
from dotllm.languages.json_schema.reading.subschemas import Path, assertions, equal_branches, smallest, without
from dotllm.languages.json_schema.reading.subschemas import pointer as as_pointer
from dotllm.suggestions import did_you_mean

MAX_DEPTH = 50
MAX_LOOKED_AT = 100  # parts of one schema
MAX_BRANCHES = 8  # of an anyOf: each is explained
MAX_SHOWN = 40  # characters of a value

Part = tuple[Any, Scope, Pointer, str]
"""A sub-schema, its scope, its JSON Pointer and the keyword that applies it."""


class _Finding(NamedTuple):
    """Why nothing satisfies a schema, as far as is known. ``pointer`` is the place of ``keyword``."""

    reason: str = ""
    keyword: str = ""
    pointer: Pointer = Pointer()
    related: tuple[Related, ...] = ()
    help: str = ""


def unsatisfiable(emitter: Emitter, schema: Any, scope: Scope) -> InvalidSpecError:
    """The refusal of a schema that nothing satisfies; ``emitter`` has emitted the schema."""
    result = _Search(emitter).explain((schema, scope, Pointer(), ""))
    reason = result.reason
    excluded = _excluded_text_in(emitter.keywords.document.root, emitter.options.excludes)
    if reason and excluded is not None:
        reason += f", and no string may hold {json.dumps(excluded, ensure_ascii=False)}"
    return InvalidSpecError(
        "nothing satisfies the schema" + (f": {reason}" if reason else ""),
        location=result.pointer,
        keyword=result.keyword,
        code="unsatisfiable",
        help=result.help,
        related=result.related,
    )


def _excluded_text_in(root: Any, excludes: Sequence[str]) -> str | None:
    """A text of ``excludes`` that a string of the schema contains: it may be why nothing is left. (A server excludes
    the markers of tool calls in every tool, and most refusals have nothing to do with them.)"""
    pending = [root] if excludes else []
    for value in pending:  # bounded: by the document, for an error
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and (excluded := next((text for text in excludes if text in value), None)):
            return excluded
    return None


def why_nothing_satisfies(emitter: Emitter, schema: Any, scope: Scope, pointer: Pointer) -> str:
    """Why nothing satisfies a part of a schema that ``emitter`` has emitted; "" if that is not known."""
    return _Search(emitter).explain((schema, scope, pointer, "")).reason


class _Search:
    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.kept: list[Any] = []  # keeps schemas alive, as nodes know them by identity

    def explain(self, part: Part) -> _Finding:
        """Why nothing satisfies ``part``: what can be found out within the budgets."""
        result, way, name = _Finding(), Pointer(), ""
        seen: set[int] = set()
        try:
            for _ in range(MAX_DEPTH):
                schema, scope, pointer, keyword = part
                result = _Finding("false allows no value" if schema is False else "", keyword, pointer)
                if not isinstance(schema, dict):
                    return result
                if id(schema) in seen:
                    return _without_end(keyword, way, name)
                seen.add(id(schema))
                way = pointer
                scope = self.emitter.keywords.document.enter(schema, scope)
                inner = self.failing_part(schema, scope, pointer)
                if inner is None:
                    result = self.missing(schema, scope, pointer) or self.clash(schema, scope, pointer) or result
                    needed = f'every document needs "{name}": it is in "required"' if name else ""
                    return result if result.help or not needed else result._replace(help=needed)
                part = inner
                if part[3] == "properties":
                    name = part[2].path.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        except (SpecError, RecursionError):  # the budgets do not suffice
            pass
        return result

    def failing(self, places: Iterable[ScopedSchema]) -> list[bool]:
        """For each sub-schema, whether nothing satisfies it."""
        result = []
        for schema, scope in places:
            self.kept.append(schema)
            result.append(self.emitter.expression(self.emitter.keywords.node(schema, scope)))
        derives = analyse(self.emitter.grammar).derives
        return [not derives[expression] for expression in result]

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
            tuples = "items" if isinstance(items, list) else "prefixItems" if "prefixItems" in relevant else ""
            prefix = schema[tuples] if tuples else []
            for i, child in enumerate(prefix[:least]):
                yield child, scope, pointer / tuples / i, tuples
            if least > len(prefix) and tuples != "items":
                yield items, scope, pointer / "items", "items"
            if "contains" in relevant and schema.get("minContains", 1):
                yield schema["contains"], scope, pointer / "contains", "contains"

    def missing(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> _Finding | None:
        """The finding about a required property that a closed object cannot have."""
        if schema.get("type") != "object" or not ("additionalProperties" in schema or scope.closes):
            return None
        schema = _anonymous(schema)
        declared = schema.get("properties", {})
        names = [name for name in schema.get("required", ()) if name not in declared][:MAX_LOOKED_AT]
        failing = self.failing(({**schema, "required": [name]}, scope) for name in names)
        lost = [name for name, fails in zip(names, failing, strict=True) if fails]
        if not lost or self.failing([({**schema, "required": []}, scope)])[0]:
            return None
        closed = "additionalProperties" in schema
        why = "additionalProperties allows" if closed else "the schema names"
        return _Finding(
            f"{_shown(lost[0])} is required, and {why} no such property",
            "required",
            pointer / "required",
            (Related(pointer / "additionalProperties", "it allows no other property"),) if closed else (),
            did_you_mean(lost[0], declared) or "add it to properties, or take it out of required",
        )

    def clash(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> _Finding | None:
        """The finding about the keywords at fault, at the first of them; None if no keyword is found."""
        names = self.at_fault(_anonymous(schema), scope)
        if not names:
            return None
        keyword = next((name for name in names if name != "type"), "type")
        branches = self.failing_branches(schema, scope, pointer) if names == ["anyOf"] else []
        core = [] if branches else self.core(_anonymous(schema), scope, pointer) if "allOf" in names else []
        if branches:
            listed = "; ".join(f"{result.pointer} allows none: {result.reason}" for result in branches)
            return _Finding(
                f'no value satisfies "anyOf", as no branch can be satisfied: {listed}',
                keyword,
                pointer / keyword,
                tuple(Related(result.pointer, result.reason) for result in branches),
            )
        shown = core or [(pointer / name, schema[name]) for name in names]
        texts = [f'"{place.path.rpartition("/")[2]}": {_shown(value)}' for place, value in shown]
        related = tuple(
            Related(place, text) for (place, _), text in zip(shown, texts, strict=True) if place != pointer / keyword
        )
        if core:
            texts = [f"{text} (at {place})" for (place, _), text in zip(shown, texts, strict=True)]
        if names == ["oneOf"]:
            untold = self.not_told_apart(schema, scope, pointer / "oneOf")
            if untold is not None:
                return untold
        satisfied = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
        reason = f"no value satisfies {satisfied}{' together' if len(texts) > 1 else ''}"
        if core:
            excluding = "exclude each other" if len(texts) > 1 else "leaves nothing that the others allow"
            reason = f'no value satisfies "{keyword}": {satisfied} {excluding}'
        return _Finding(reason, keyword, pointer / keyword, related)

    def not_told_apart(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> _Finding | None:
        """The finding about ``oneOf``, at ``pointer``, if something would satisfy ``anyOf`` in its place."""
        others = {name: value for name, value in _anonymous(schema).items() if name != "oneOf"}
        if self.failing([({**others, "allOf": [*others.get("allOf", ()), {"anyOf": schema["oneOf"]}]}, scope)])[0]:
            return None
        same = equal_branches(schema["oneOf"])
        what = (
            f"branches {same[0]} and {same[1]} are equivalent"
            if same
            else "every value that fits one branch also fits another"
        )
        related = tuple(Related(pointer / at, "the same") for at in same or ())
        reason = f'no value satisfies "oneOf", which takes what fits exactly one branch: {what}'
        help = "write anyOf, or give each branch a property with a const of its own"
        return _Finding(reason, "oneOf", pointer, related, help)

    def at_fault(self, schema: dict[str, Any], scope: Scope) -> list[str]:
        """The keywords at fault: if any one of them were absent, something would satisfy the schema. If there are
        several reasons, the first keyword that nothing satisfies on its own."""
        relevant = [name for name in schema if name in ASSERTIONS[scope.dialect]]
        failing = self.failing((without(schema, [(name,)]), scope) for name in relevant)
        result = [name for name, fails in zip(relevant, failing, strict=True) if not fails]
        if not result:
            failing = self.failing(({name: schema[name]}, scope) for name in relevant)
            result = [name for name, fails in zip(relevant, failing, strict=True) if fails][:1]
        if len(result) > 2 and "type" in result:  # of course values of other types would fit
            result.remove("type")
        return result

    def failing_branches(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> list[_Finding]:
        """Why nothing satisfies each branch of ``anyOf``; empty if a branch alone can be satisfied, or if there are
        too many branches."""
        places = [(branch, scope, pointer / "anyOf" / i, "anyOf") for i, branch in enumerate(schema["anyOf"])]
        if len(places) > MAX_BRANCHES or not all(self.failing(place[:2] for place in places)):
            return []
        return [self.explain(place) for place in places]

    def core(self, schema: dict[str, Any], scope: Scope, pointer: Pointer) -> list[tuple[Pointer, Any]]:
        """The fewest keywords of the inner schemas that nothing satisfies together: their places and values."""
        parts = [path for path in assertions(schema, scope.dialect) if _only_forbids(path)]
        if len(parts) > MAX_LOOKED_AT:
            return []
        known: dict[frozenset[Path], bool] = {}

        def fails(kept: list[Path]) -> bool:
            dropped = [path for path in parts if path not in kept]
            effective = frozenset(path for path in kept if not any(path[: len(out)] == out for out in dropped))
            if effective not in known:
                known[effective] = self.failing([(without(schema, dropped), scope)])[0]
            return known[effective]

        paths = smallest(parts, fails, MAX_LOOKED_AT) or []
        inner = [path for path in paths if not any(other[: len(path)] == path != other for other in paths)]
        telling = [path for path in inner if path[-1] not in ("type", "required")] or inner
        places = []
        for path in telling:
            value: Any = schema
            for token in path:
                value = value[token]
            places.append((Pointer(pointer.path + as_pointer(path)), value))
        return places


def _without_end(keyword: str, way: Pointer, name: str) -> _Finding:
    """The finding about a document that would have to contain itself: ``keyword``, at ``way``, leads back, and ``name``
    is the last required property on the way."""
    help = f'take "{name}" out of required, or allow null in its place, with anyOf' if name else "let the list be empty"
    reason = "a schema requires itself, directly or indirectly, so no finite document satisfies it"
    return _Finding(reason, keyword, way / keyword, (), help)


def _anonymous(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` without its identifier: a variation of it is not a separate resource."""
    return {name: value for name, value in schema.items() if name not in ("$id", "id")}


def _only_forbids(path: Path) -> bool:
    """Whether leaving out the keyword at ``path`` can only allow more."""
    inside = {"not", "if", "oneOf"}.intersection(path[:-1])
    return not inside and path[-1] not in ("properties", "patternProperties", "prefixItems")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=_number)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _number(value: Any) -> Any:
    return int(value) if value == int(value) else float(value)
