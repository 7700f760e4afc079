"""What the caller may choose about the text of a document, and the budgets a schema has to stay within."""

from __future__ import annotations

from typing import Literal, NamedTuple

Order = Literal["declared", "any"]
Whitespace = Literal["formatted", "any"]
"""What may stand between two tokens: what formatters write, or any white space of JSON."""


class SchemaBudget(NamedTuple):
    """Limits on the work one schema may cause. Reaching one is a `BudgetExceededError`, the same on every machine.

    ``steps``: work of the algebra, of about a microsecond each. ``nodes``: boolean combinations of sub-schemas that it
    looks at. ``alternatives``: of one type in one schema (the product of its anyOf, oneOf and if).
    ``edges``: size of the automaton over the members of one object or the items of one array; ``total_edges``: of all
    of them.
    """

    steps: int = 300_000
    nodes: int = 50_000
    alternatives: int = 1_024
    edges: int = 60_000
    total_edges: int = 400_000


class Options(NamedTuple):
    """How documents are written. See ``docs/json-schema.md`` for the meaning of each."""

    any_whitespace: bool = True
    whitespace_pattern: str | None = None
    order: Order = "declared"
    additional_properties: bool | None = None
    default_dialect: str = "2020-12"
    budget: SchemaBudget = SchemaBudget()
    excludes: tuple[str, ...] = ()
    """texts that no string holds, keys included (see `forbidden_substrings`)"""
    finite_numbers: bool = False
    """only numbers that are read as finite ones (see `finite_numbers`)"""
    whitespace: Whitespace = "formatted"
