"""The applicators in place: what else must hold of the same value (``$ref``, ``allOf``, ``if``, …)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.disjointness import one_of
from dotllm.languages.json_schema.algebra.normal_form import ANYTHING, FALSE, TRUE, Node, NormalForm, ObjectConstraint
from dotllm.languages.json_schema.algebra.object_conditions import conditions, mentioning
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.keyword_groups import DECLARING, IN_PLACE, REFERENCES
from dotllm.languages.json_schema.reading.keyword_values import mapping
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader

FEW_DEPENDENCIES = 4


def with_applicators(
    reader: SchemaReader, schema: dict[str, Any], scope: Scope, relevant: Set[str], own: NormalForm
) -> NormalForm:
    """``own`` ∧ all that must hold of the same value, met in the order of the schema's text, so that keys are
    declared in the order in which a reader meets them. The place of ``own`` is where its members are declared."""
    algebra = reader.algebra
    out = ANYTHING
    if relevant.isdisjoint(DECLARING):
        out, own = own, ANYTHING
    for keyword, value in schema.items():
        if keyword in DECLARING and keyword in relevant:
            out, own = algebra.meet(out, own), ANYTHING
        elif keyword in IN_PLACE and keyword in relevant:
            for node in _applicator(reader, keyword, value, schema, scope):
                out = algebra.meet(out, algebra.form(node))
    return out


def _applicator(reader: SchemaReader, keyword: str, value: Any, schema: dict[str, Any], scope: Scope) -> Iterable[Node]:
    """What a keyword says of the value itself."""
    algebra = reader.algebra
    if keyword in REFERENCES:
        yield reader.node(*reader.document.follow(keyword, value, scope))
    elif keyword == "allOf":
        yield from reader.nodes(keyword, value, scope)
    elif keyword == "anyOf":
        yield algebra.any_of(reader.nodes(keyword, value, scope))
    elif keyword == "oneOf":
        excluded = reader.nodes(keyword, value, reader.document.stating(scope)) if scope.closes else None
        yield one_of(algebra, reader.nodes(keyword, value, scope), excluded)
    elif keyword == "not":
        yield reader.not_of(value, scope)
    elif keyword == "if":
        yield _conditional(reader, schema, scope)
    else:
        children = mapping(schema, keyword).items()
        lists = keyword == "dependencies"  # of names, which are read elsewhere
        dependent = [(name, child) for name, child in children if not (lists and isinstance(child, list))]
        for name, child in dependent:
            node = reader.node(child, scope)
            whole = _implied(algebra, name, node) if len(dependent) > FEW_DEPENDENCIES else None
            if whole is None:
                # Without the key the schema says nothing; where it names keys, that matters.
                needed = algebra.both(reader.present(name), node) if scope.closes else node
                whole = algebra.any_of([_absent(algebra, name), needed])
            yield whole


def _conditional(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> Node:
    algebra = reader.algebra
    condition = reader.node(schema["if"], scope)
    then = reader.node(schema.get("then", True), scope)
    otherwise = reader.node(schema.get("else", True), scope)
    if then == otherwise:
        return then
    fails = reader.not_of(schema["if"], scope)
    return algebra.any_of([algebra.both(condition, then), algebra.both(fails, otherwise)])


def _implied(algebra: Algebra, name: str, node: Node) -> Node | None:
    """Objects with the key ``name`` are of ``node``. This is one constraint, which excludes each way to have the key
    and not be of ``node``. (As two alternatives, n dependencies would multiply to 2**n.) None if ``node`` is too
    complex for that.
    """
    form = algebra.form(node)
    if len(form.objects) != 1 or form.objects[0].negated or form.objects[0].named is not None:
        return None
    excluded: list[ObjectConstraint] = []
    for condition in conditions(form.objects[0]):
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
    """Not an object that has the key ``name``."""
    form = ANYTHING._replace(objects=(mentioning({name: FALSE}),))
    return algebra.of_form(form, ("absent", name))
