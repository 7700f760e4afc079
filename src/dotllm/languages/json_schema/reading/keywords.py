"""Turns sub-schemas into nodes and normal forms.

The keywords of a schema are read type by type into one form (`scalar_keywords`, `array_keywords`, `object_keywords`),
which then meets the forms of the schema's applicators (`applicators`, `unevaluated`). Keywords that assert nothing, and
keywords that the dialect does not know, are not read.

JSON Schema Validation 2020-12 (and the drafts before it), https://json-schema.org/specification
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, get_args

from dotllm.errors import InvalidSpecError, SpecError
from dotllm.languages.json_schema.algebra.algebra import Algebra, Loop
from dotllm.languages.json_schema.algebra.normal_form import (
    ANYTHING,
    FALSE,
    NO_NUMBER,
    NO_STRING,
    TRUE,
    Node,
    NormalForm,
)
from dotllm.languages.json_schema.algebra.object_conditions import mentioning
from dotllm.languages.json_schema.options import AdditionalProperties, NumberDigits, Options, Order, Whitespace
from dotllm.languages.json_schema.reading.applicators import with_applicators
from dotllm.languages.json_schema.reading.array_keywords import array_constraint
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect
from dotllm.languages.json_schema.reading.document import Document, Scope
from dotllm.languages.json_schema.reading.json_values import form_of_values
from dotllm.languages.json_schema.reading.keyword_groups import (
    ARRAYS,
    IN_PLACE,
    NUMERIC,
    OBJECTS,
    REFERENCES,
    STRINGS,
    UNEVALUATED,
)
from dotllm.languages.json_schema.reading.keyword_values import numeric, with_keyword
from dotllm.languages.json_schema.reading.loops import REMEDY, closing_reference
from dotllm.languages.json_schema.reading.object_keywords import object_constraint
from dotllm.languages.json_schema.reading.repetition import Repetitions
from dotllm.languages.json_schema.reading.scalar_keywords import SCALARS, TYPES, form_of_types, strings_of
from dotllm.languages.json_schema.reading.unevaluated import Unevaluated

FEW_NODES = 32
_CHOICES = [
    ("order", "property_order", get_args(Order)),
    ("whitespace", "whitespace", get_args(Whitespace)),
    ("additional_properties", "additional_properties", get_args(AdditionalProperties)),
    ("number_digits", "number_digits", get_args(NumberDigits)),
]
"""The options that have few values, with their public names and these values."""


class Keywords:
    """Reads the sub-schemas of one document."""

    def __init__(self, document: Document, algebra: Algebra, options: Options) -> None:
        for name, public, known in _CHOICES:
            given = getattr(options, name)
            if given not in known:
                raise InvalidSpecError(f"{public} must be one of {known}, not {given!r}", keyword=name)
        self.document = document
        self.algebra = algebra
        self.repetitions = Repetitions()
        algebra.reader = weakref.proxy(self)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def node(self, schema: Any, scope: Scope) -> Node:
        """The node of a sub-schema; a sub-schema that is only a reference has the node of its target."""
        seen = 0
        via: tuple[dict[str, Any], str] | None = None
        while True:  # bounded: by a thousand references
            if schema is True:
                return TRUE
            if schema is False:
                return FALSE
            if "$id" in schema or "id" in schema:
                scope = self.document.enter(schema, scope)
            relevant = ASSERTIONS[scope.dialect].intersection(schema)
            if not relevant:
                return TRUE
            if (
                len(relevant) == 1
                and "nullable" not in schema
                and (scalar := SCALARS.get(str(schema.get("type")))) is not None
            ):
                return self.algebra.of_form(scalar, ("type", schema["type"]))
            if relevant.isdisjoint(REFERENCES) or (len(relevant) > 1 and scope.dialect >= Dialect.DRAFT2019):
                if len(self.algebra.parts) > FEW_NODES:  # a large document: it may say the same again and again
                    schema = self.repetitions.first(schema)
                return self.algebra.of_schema(schema, scope)
            reference = next(keyword for keyword in REFERENCES if keyword in relevant)
            via = (schema, reference)
            seen += 1
            if seen > 1000:
                wrong = InvalidSpecError("$ref refers to itself without end", keyword="$ref", help=REMEDY)
                raise self.located(wrong, *via)
            try:
                schema, scope = self.document.follow(reference, schema[reference], scope)
            except SpecError as error:
                raise self.located(error, *via) from None

    def nodes(self, schemas: Iterable[Any], scope: Scope) -> list[Node]:
        """The nodes of a list of sub-schemas."""
        return [self.node(schema, scope) for schema in schemas]

    def located(self, error: SpecError, schema: dict[str, Any], keyword: str = "") -> SpecError:
        """The error with the place of ``schema`` in the document."""
        if error.location is not None:
            return error
        if isinstance(error, Loop):
            place = closing_reference(self.document, schema) or self.document.pointer(schema)
            return error.replaced(location=place, help=REMEDY)
        keyword = error.keyword or keyword
        pointer = self.document.pointer(schema)
        if keyword in schema:
            pointer = pointer / keyword
        return error.at(pointer, keyword)

    # -- forms ---------------------------------------------------------------------------------------------------------

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

    # -- enum and const ------------------------------------------------------------------------------------------------

    def _enum(self, form: NormalForm, values: Any, keyword: str = "enum") -> NormalForm:
        """``form`` ∧ one of ``values``. Raises InvalidSpecError if one of them is not a JSON value."""
        try:
            listed = form_of_values(self.algebra, values)
        except SpecError as error:
            raise with_keyword(error, keyword) from error.__cause__
        return listed if form is ANYTHING else self.algebra.meet(form, listed)

    def not_of(self, schema: Any, scope: Scope) -> Node:
        """The values that a sub-schema does not allow."""
        return self.algebra.complement(self.node(schema, self.document.stating(scope)))

    def present(self, name: str) -> Node:
        """An object that has the key ``name``."""
        form = NormalForm(0, NO_NUMBER, NO_STRING, (), (mentioning({name: TRUE}, [name]),))
        return self.algebra.of_form(form, ("present", name))
