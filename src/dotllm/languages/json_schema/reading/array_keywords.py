"""Reads the keywords of arrays (``items``, ``prefixItems``, ``contains``, ``uniqueItems``, …) into an
`ArrayConstraint`."""

from __future__ import annotations

from typing import Any

from dotllm.languages.json_schema.algebra import arrays
from dotllm.languages.json_schema.algebra.normal_form import ANY_ARRAY, TRUE, ArrayConstraint, Contains, Node
from dotllm.languages.json_schema.reading.dialect import Dialect
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.keyword_values import count
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader


def array_constraint(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> ArrayConstraint | None:
    """The constraint that a schema's keywords of arrays make; None if no array satisfies them."""
    prefix: tuple[Node, ...] = ()
    rest = TRUE
    items = schema.get("items", True)
    if scope.dialect >= Dialect.DRAFT2020 and "prefixItems" in schema:
        prefix = tuple(reader.nodes(schema["prefixItems"], scope))
        rest = reader.node(items, scope)
    elif isinstance(items, list):
        prefix = tuple(reader.node(item, scope) for item in items)
        rest = reader.node(schema.get("additionalItems", True), scope)
    else:
        rest = reader.node(items, scope)
    contains: tuple[Contains, ...] = ()
    if "contains" in schema and scope.dialect >= Dialect.DRAFT6:
        low, high = 1, None
        if scope.dialect >= Dialect.DRAFT2019:
            least = count(schema, "minContains")
            low, high = 1 if least is None else least, count(schema, "maxContains")
        contains = (Contains(reader.node(schema["contains"], scope), low, high),)
    low, high = count(schema, "minItems") or 0, count(schema, "maxItems")
    constraint = ArrayConstraint(prefix, rest, low, high, contains, schema.get("uniqueItems", False))
    return ANY_ARRAY if constraint == ANY_ARRAY else arrays.simplified(reader.algebra, constraint)
