"""The interface through which the automata over members and items (`members`, `items`) write a document.

`Emitter` with `JsonText` writes JSON. Structural tags write the same values in other styles.
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
    def grammar(self) -> Grammar:
        """The grammar that it writes into."""

    @property
    def algebra(self) -> Algebra:
        """The algebra of the nodes."""

    @property
    def options(self) -> Options:
        """The caller's options."""

    def value(self, node: Node) -> Expression:
        """The texts of a node; the rules it calls may be defined later."""

    def values(self, nodes: Iterable[Node]) -> list[Expression]:
        """`value` for each node."""

    def spend(self, edges: int, keyword: str) -> None:
        """Count the edges of an automaton against a budget. Raises `BudgetExceededError`."""


class ObjectText(Protocol):
    """How an object is written."""

    @property
    def comma(self) -> Expression:
        """What stands between two members."""

    def named_member(self, name: str, value: Expression) -> Expression:
        """A member whose key the schema names."""

    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]:
        """`named_member` for each."""

    def member(self, keys: StringLanguage, value: Expression) -> Expression:
        """A member whose key is one of ``keys``."""

    def object(
        self,
        states: int,
        finals: Sequence[int],
        edges: Sequence[tuple[int, Expression, int]],
        distinct: str | None = None,
    ) -> Expression:
        """An object whose members are what a network reads from state 0; commas are on its edges. ``distinct``: because
        of this keyword, guides remember the object's keys, so that no key comes twice. Raises `UnsupportedError` if
        they cannot."""


class ArrayText(Protocol):
    """How an array is written."""

    @property
    def comma(self) -> Expression:
        """What stands between two items."""

    @property
    def array_open(self) -> Expression:
        """The beginning of an array."""

    @property
    def array_close(self) -> Expression:
        """The end of an array."""

    def distinct_array_open(self) -> Expression:
        """The beginning of an array whose items guides remember. Raises `UnsupportedError` if they cannot."""

    def item(self, value: Expression) -> Expression:
        """One item."""


class ObjectWriter(Writer, Protocol):
    """A writer of objects."""

    @property
    def text(self) -> ObjectText:
        """The style."""


class ArrayWriter(Writer, Protocol):
    """A writer of arrays."""

    @property
    def text(self) -> ArrayText:
        """The style."""
