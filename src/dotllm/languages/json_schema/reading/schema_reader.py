"""Turns sub-schemas into nodes; `Keywords` turns them into forms. Readers of single keywords need only this part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dotllm.errors import InvalidSpecError, SpecError
from dotllm.languages.json_schema.algebra.algebra import Algebra, Loop
from dotllm.languages.json_schema.algebra.normal_form import FALSE, NO_NUMBER, NO_STRING, TRUE, Node, NormalForm
from dotllm.languages.json_schema.algebra.object_conditions import mentioning
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, REFERENCES, Dialect
from dotllm.languages.json_schema.reading.document import Document, Scope
from dotllm.languages.json_schema.reading.loops import REMEDY, closing_reference
from dotllm.languages.json_schema.reading.repetition import Repetitions
from dotllm.languages.json_schema.reading.scalar_keywords import SCALARS

FEW_NODES = 32


class SchemaReader:
    """Reads the sub-schemas of one document."""

    def __init__(self, document: Document, algebra: Algebra) -> None:
        self.document = document
        self.algebra = algebra
        self.repetitions = Repetitions()

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

    def not_of(self, schema: Any, scope: Scope) -> Node:
        """The values that a sub-schema does not allow."""
        return self.algebra.complement(self.node(schema, self.document.stating(scope)))

    def present(self, name: str) -> Node:
        """An object that has the key ``name``."""
        form = NormalForm(0, NO_NUMBER, NO_STRING, (), (mentioning({name: TRUE}, [name]),))
        return self.algebra.of_form(form, ("present", name))
