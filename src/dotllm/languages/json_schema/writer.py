"""The interface through which the automata over members and items (`members`, `items`) write a document.

`Emitter` with `JsonText` writes JSON. Structural tags write the same values in other styles, with subclasses of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.options import Options


class Writer(Protocol):
    """Writes the values of nodes into one grammar; each method is described in `Emitter`."""

    @property
    def grammar(self) -> Grammar: ...
    @property
    def algebra(self) -> Algebra: ...
    @property
    def options(self) -> Options: ...
    @property
    def text(self) -> JsonText: ...
    def value(self, node: Node) -> Expression: ...
    def values(self, nodes: Iterable[Node]) -> list[Expression]: ...
    def spend(self, edges: int, keyword: str) -> None: ...
