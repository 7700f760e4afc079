"""The in-place applicators, which say what else must hold of the same value (``$ref``, ``allOf``, ``if``, …)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.disjointness import one_of
from dotllm.languages.json_schema.algebra.normal_form import ANYTHING, FALSE, TRUE, Node, NormalForm, ObjectConstraint
from dotllm.languages.json_schema.algebra.object_conditions import conditions, mentioning
from dotllm.languages.json_schema.reading.conditionals import conditional, conjunction
from dotllm.languages.json_schema.reading.dialect import DECLARING, IN_PLACE, REFERENCES
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader

FEW_DEPENDENCIES = 4
DEEPEST_DECLARATION = 8
"""How deep the search for the declaration of a discriminator's property follows references and applicators."""


def with_applicators(
    reader: SchemaReader, schema: dict[str, Any], scope: Scope, relevant: Set[str], own: NormalForm
) -> NormalForm:
    """``own`` ∧ everything else that must hold of the same value, met in the order of the schema's text, so that keys
    are declared in the order in which a reader meets them. The place of ``own`` is where its members are declared."""
    algebra = reader.algebra
    out = ANYTHING
    if relevant.isdisjoint(DECLARING):
        out, own = own, ANYTHING
    for keyword, value in schema.items():
        if keyword in DECLARING and keyword in relevant:
            out, own = algebra.meet(out, own), ANYTHING
        elif keyword in IN_PLACE and keyword in relevant:
            forms = [algebra.form(node) for node in _applicator(reader, keyword, value, schema, scope)]
            out = algebra.meet_all([out, *forms])
    return out


def _applicator(reader: SchemaReader, keyword: str, value: Any, schema: dict[str, Any], scope: Scope) -> Iterable[Node]:
    """The nodes that a keyword demands of the value itself."""
    algebra = reader.algebra
    if keyword in REFERENCES:
        yield reader.node(*reader.document.follow(keyword, value, scope))
    elif keyword == "allOf":
        yield from conjunction(reader, schema, scope)
    elif keyword == "anyOf":
        yield algebra.any_of(_alternatives(reader, schema, value, scope))
    elif keyword == "oneOf":
        excluded = reader.nodes(value, reader.document.stating(scope)) if scope.closes else None
        yield one_of(algebra, _alternatives(reader, schema, value, scope), excluded)
    elif keyword == "not":
        yield reader.not_of(value, scope)
    elif keyword == "if":
        yield conditional(reader, schema, scope)
    else:
        children = schema[keyword].items()
        lists = keyword == "dependencies"  # lists of names are read elsewhere
        dependent = [(name, child) for name, child in children if not (lists and isinstance(child, list))]
        closes = scope.closes and "additionalProperties" not in schema  # it says what other keys may be
        for name, child in dependent:
            node = reader.node(child, scope)
            whole = _implied(algebra, name, node, closes=closes) if len(dependent) > FEW_DEPENDENCIES else None
            if whole is None:
                # Without the key the schema does not apply; if it names keys, that matters.
                needed = algebra.both(reader.present(name), node) if closes else node
                whole = algebra.any_of([_absent(algebra, name), needed])
            yield whole


def _alternatives(reader: SchemaReader, schema: dict[str, Any], values: list[Any], scope: Scope) -> list[Node]:
    """The nodes of the alternatives in ``values``.

    A ``discriminator`` names the property by which readers choose an alternative (OpenAPI 3.1.0 §4.8.25; Pydantic
    refuses an object without it). So that property must be written, although Pydantic does not list a property with a
    default as required. Clients such as pydantic-ai leave the keyword out (`_tag`).
    """
    nodes = reader.nodes(values, scope)
    if not reader.document.has_no_dialect:
        return nodes
    discriminator = schema.get("discriminator")
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    if discriminator is None and values is schema.get("oneOf"):
        name = _tag(reader, values, scope)
    if not isinstance(name, str):
        return nodes
    form = ANYTHING._replace(objects=(mentioning({name: TRUE}, [name]),))
    present = reader.algebra.of_form(form, ("present in objects", name))
    return [
        reader.algebra.both(node, present) if _declares(reader, value, name, scope) else node
        for node, value in zip(nodes, values, strict=True)
    ]


def _tag(reader: SchemaReader, alternatives: list[Any], scope: Scope) -> str | None:
    """The property by which readers choose one of ``oneOf``, if no ``discriminator`` names it: each alternative lists
    its own strings for it, and requires it or has one of them as its default. None if there is no such property, or if
    all alternatives require it.

    Where it may be left out, readers take its default for it. So this excludes texts that the schema allows, but hardly
    ever values. (Pydantic writes ``oneOf`` for unions with a discriminator only.)
    """
    parts = [
        reader.document.follow("$ref", part["$ref"], scope)[0] if isinstance(part, dict) and "$ref" in part else part
        for part in alternatives
    ]
    if len(parts) < 2 or not all(isinstance(part, dict) and part.get("properties") for part in parts):
        return None
    for name in parts[0]["properties"]:
        listed = [_settled(part, name) for part in parts]
        values = [value for own in listed for value in own]
        if all(listed) and len({*values}) == len(values):
            return None if all(name in part.get("required", ()) for part in parts) else name
    return None


def _settled(schema: dict[str, Any], name: str) -> set[str]:
    """The strings that a property may have which is required or has one of them as its default; else none."""
    own = schema["properties"].get(name)
    if not isinstance(own, dict):
        return set()
    values = own.get("enum", [own.get("const")])
    if not all(isinstance(value, str) for value in values):
        return set()
    return {*values} if name in schema.get("required", ()) or own.get("default") in values else set()


def _declares(reader: SchemaReader, schema: Any, name: str, scope: Scope, depth: int = 0) -> bool:
    """Whether a schema, or what it refers to, gives its objects a property ``name``."""
    if not isinstance(schema, dict) or depth > DEEPEST_DECLARATION:
        return False
    known, key = reader.document.declaring, (id(schema), name)
    if key not in known:
        known[key] = False  # for when the search comes back here

        def declares(part: Any, inner: Scope = scope) -> bool:
            return _declares(reader, part, name, inner, depth + 1)

        ways = [(schema.get(keyword), how) for keyword, how in (("anyOf", all), ("oneOf", all), ("allOf", any))]
        known[key] = (
            name in schema.get("properties", ())
            or ("$ref" in schema and declares(*reader.document.follow("$ref", schema["$ref"], scope)))
            or any(how(map(declares, parts)) for parts, how in ways if parts)
        )
    return known[key]


def _implied(algebra: Algebra, name: str, node: Node, *, closes: bool) -> Node | None:
    """The node of "objects with the key ``name`` are of ``node``", as one constraint that excludes each way to have the
    key and not be of ``node``. (As two alternatives, n dependencies would multiply to 2**n.) None if ``node`` is too
    complex for this. ``closes``: the keys that ``node`` names matter.
    """
    form = algebra.form(node)
    if len(form.objects) != 1 or form.objects[0].negated or (closes and form.objects[0].named is not None):
        return None
    excluded: list[ObjectConstraint] = []
    for condition in conditions(form.objects[0]._replace(named=None)):
        broken = condition.broken(algebra)
        if broken is None:
            return None
        way = objects.meet(algebra, mentioning({name: TRUE}, [name]), broken)
        if way is not None:
            excluded.append(way)
    names = dict.fromkeys((key for way in excluded for key in way.properties), TRUE)
    constraint = mentioning(names)._replace(negated=tuple(excluded))
    return algebra.of_form(ANYTHING._replace(objects=(constraint,)))


def _absent(algebra: Algebra, name: str) -> Node:
    """Everything but objects that have the key ``name``."""
    form = ANYTHING._replace(objects=(mentioning({name: FALSE}),))
    return algebra.of_form(form, ("absent", name))
