"""The keywords by what they are about."""

from __future__ import annotations

NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
STRINGS = frozenset({"minLength", "maxLength", "pattern", "format"})
ARRAYS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems", "maxItems"}
    | {"uniqueItems"}
)
OBJECTS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties"}
    | {"maxProperties", "dependentRequired", "dependencies"}
)
IN_PLACE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
    | {"dependencies"}
)
UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
HOLDING = (
    (IN_PLACE | UNEVALUATED) - {"$ref", "$dynamicRef", "$recursiveRef"}
    | {"then", "else", "properties", "patternProperties", "additionalProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "contains"}
)
"""Keywords whose values are schemas, or hold some."""
DECLARING = frozenset({"properties", "additionalProperties"})
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
