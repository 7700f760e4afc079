"""What the readers of single keywords need of the reader of sub-schemas (`Keywords`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.reading.document import Document, Scope


class SchemaReader(Protocol):
    """Reads the sub-schemas of one document."""

    @property
    def document(self) -> Document:
        """The document of the sub-schemas."""

    @property
    def algebra(self) -> Algebra:
        """The algebra of their nodes."""

    def node(self, schema: Any, scope: Scope) -> Node:
        """The node of a sub-schema. Raises `InvalidSpecError`."""

    def nodes(self, schemas: Iterable[Any], scope: Scope) -> list[Node]:
        """The nodes of a list of sub-schemas. Raises `InvalidSpecError`."""

    def not_of(self, schema: Any, scope: Scope) -> Node:
        """The values that a sub-schema does not allow."""

    def present(self, name: str) -> Node:
        """An object that has the key ``name``."""
