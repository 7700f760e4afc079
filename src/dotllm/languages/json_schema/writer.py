"""The interface through which the automata over members and items (`members`, `items`) write a document.

`Emitter` with `JsonText` writes JSON; both describe their members. Structural tags write the same values in other
styles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.strings.string_language import StringLanguage


class Writer(Protocol):
    """Writes the values of nodes into one grammar."""

    @property
    def grammar(self) -> Grammar: ...
    @property
    def algebra(self) -> Algebra: ...
    @property
    def options(self) -> Options: ...
    def value(self, node: Node) -> Expression: ...
    def values(self, nodes: Iterable[Node]) -> list[Expression]: ...
    def spend(self, edges: int, keyword: str) -> None: ...


class ObjectText(Protocol):
    """How an object is written."""

    @property
    def comma(self) -> Expression: ...
    def named_member(self, name: str, value: Expression) -> Expression: ...
    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]: ...
    def member(self, keys: StringLanguage, value: Expression) -> Expression: ...
    def object(
        self,
        states: int,
        finals: Sequence[int],
        edges: Sequence[tuple[int, Expression, int]],
        distinct: str | None = None,
    ) -> Expression: ...


class ArrayText(Protocol):
    """How an array is written."""

    @property
    def comma(self) -> Expression: ...
    @property
    def array_open(self) -> Expression: ...
    @property
    def array_close(self) -> Expression: ...
    def distinct_array_open(self) -> Expression: ...
    def item(self, value: Expression) -> Expression: ...


class ObjectWriter(Writer, Protocol):
    """A writer of objects."""

    @property
    def text(self) -> ObjectText: ...


class ArrayWriter(Writer, Protocol):
    """A writer of arrays."""

    @property
    def text(self) -> ArrayText: ...
