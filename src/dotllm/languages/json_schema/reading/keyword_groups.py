"""The keywords of all dialects, grouped by the type that they constrain."""

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
DECLARING = frozenset({"properties", "additionalProperties"})
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
