"""Turns sub-schemas into nodes and normal forms.

The keywords of a schema are read type by type into one form (`scalar_keywords`, `container_keywords`), which then meets
the forms of the schema's applicators (`applicators`, `unevaluated`). Keywords that assert nothing, and keywords that
the dialect does not know, are not read.

JSON Schema Validation 2020-12 (and the drafts before it), https://json-schema.org/specification
"""

from __future__ import annotations

import weakref
from typing import Any, get_args

from dotllm.errors import InvalidSpecError, SpecError
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import ANYTHING, NO_NUMBER, NO_STRING, NormalForm
from dotllm.languages.json_schema.options import AdditionalProperties, NumberDigits, Options, Order, Whitespace
from dotllm.languages.json_schema.reading.applicators import with_applicators
from dotllm.languages.json_schema.reading.container_keywords import array_constraint, object_constraint
from dotllm.languages.json_schema.reading.dialect import (
    ARRAYS,
    ASSERTIONS,
    IN_PLACE,
    NUMERIC,
    OBJECTS,
    STRINGS,
    UNEVALUATED,
)
from dotllm.languages.json_schema.reading.document import Document, Scope
from dotllm.languages.json_schema.reading.json_values import form_of_values
from dotllm.languages.json_schema.reading.scalar_keywords import TYPES, form_of_types, numeric, strings_of, with_keyword
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader
from dotllm.languages.json_schema.reading.unevaluated import Unevaluated

_CHOICES: list[tuple[str, str, tuple[Any, ...]]] = [
    ("any_whitespace", "any_whitespace", (True, False)),
    ("order", "property_order", get_args(Order)),
    ("whitespace", "whitespace", get_args(Whitespace)),
    ("additional_properties", "additional_properties", get_args(AdditionalProperties)),
    ("number_digits", "number_digits", get_args(NumberDigits)),
]
"""The options with a fixed list of values, with their public names and these values."""


class Keywords(SchemaReader):
    """Reads the keywords of the sub-schemas of one document."""

    def __init__(self, document: Document, algebra: Algebra, options: Options) -> None:
        for name, public, known in _CHOICES:
            given = getattr(options, name)
            if given not in known:
                raise InvalidSpecError(f"{public} must be one of {known}, not {given!r}", keyword=name)
        super().__init__(document, algebra)
        algebra.reader = weakref.proxy(self)

    def form(self, schema: dict[str, Any], scope: Scope) -> NormalForm:
        """The normal form of a sub-schema. Raises SpecError with the JSON Pointer of the keyword that is refused."""
        try:
            return self._form(schema, scope)
        except SpecError as error:
            if error.location is not None:
                raise
            raise self.located(error, schema) from error.__cause__

    def _form(self, schema: dict[str, Any], scope: Scope) -> NormalForm:
        relevant = ASSERTIONS[scope.dialect].intersection(schema)
        out = form_of_types(self.algebra, schema["type"]) if "type" in relevant else ANYTHING
        if out is not ANYTHING and schema.get("nullable") is True and self.document.has_no_dialect:
            out = self.algebra.unite([out, TYPES["null"]])  # OpenAPI 3.0.3, which names no dialect
        if len(relevant) == 1 and out is not ANYTHING:
            return out
        constants, number, string, array_constraints, object_constraints = out
        if number is not NO_NUMBER and not relevant.isdisjoint(NUMERIC):
            number = numeric(schema, number)
        if string is not NO_STRING and not relevant.isdisjoint(STRINGS):
            string = strings_of(schema)
        if array_constraints and not relevant.isdisjoint(ARRAYS):
            array = array_constraint(self, schema, scope)
            array_constraints = () if array is None else (array,)
        if object_constraints and not relevant.isdisjoint(OBJECTS):
            constraint = object_constraint(self, schema, scope)
            object_constraints = () if constraint is None else (constraint,)
        out = NormalForm(constants, number, string, array_constraints, object_constraints)
        if "enum" in relevant:
            out = self._enum(out, schema["enum"])
        if "const" in relevant:
            out = self._enum(out, [schema["const"]], "const")
        if not relevant.isdisjoint(IN_PLACE):
            out = with_applicators(self, schema, scope, relevant, out)
        if not relevant.isdisjoint(UNEVALUATED):
            out = Unevaluated(self).limit(schema, scope, out)
        return out

    def _enum(self, form: NormalForm, values: Any, keyword: str = "enum") -> NormalForm:
        """``form`` ∧ one of ``values``. Raises InvalidSpecError if one of them is not a JSON value."""
        try:
            listed = form_of_values(self.algebra, values)
        except SpecError as error:
            raise with_keyword(error, keyword) from error.__cause__
        return listed if form is ANYTHING else self.algebra.meet(form, listed)
