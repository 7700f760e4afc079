"""The caller's choices about the text of a document, and the budgets of a schema."""

from __future__ import annotations

from typing import Literal, NamedTuple

Order = Literal["declared", "any"]
Whitespace = Literal["formatted", "any"]
"""The white space between two tokens: what formatters write, or any white space of JSON."""
AdditionalProperties = Literal["closed", "open", False]
"""Whether objects may have keys that the schema does not mention. "closed": not if it lists ``properties``; "open": as
the standard says; False: not if it names any key, even if no object is left (`objects.closed`)."""

NumberDigits = Literal["bounded", "any"]
"""How long a number may be: so long that every parser still reads it as written (`bounded_numbers`), or any length."""


class SchemaBudget(NamedTuple):
    """Limits on the work that one schema may cause. Exceeding one raises `BudgetExceededError`, on every machine alike.

    ``steps``: steps of the algebra, of about a microsecond each. ``nodes``: boolean combinations of sub-schemas that it
    makes. ``alternatives``: the alternatives of one type in one schema (the product of its anyOf, oneOf and if).
    ``edges``: the edges of the automaton over the members of one object or the items of one array; ``total_edges``: the
    edges of all such automata.
    """

    steps: int = 300_000
    nodes: int = 50_000
    alternatives: int = 1_024
    edges: int = 60_000
    total_edges: int = 400_000


class Options(NamedTuple):
    """How documents are written. See ``docs/json-schema.md`` for the meaning of each option."""

    any_whitespace: bool = True
    whitespace_pattern: str | None = None
    order: Order = "declared"
    additional_properties: AdditionalProperties = "closed"
    default_dialect: str = "2020-12"
    budget: SchemaBudget = SchemaBudget()
    excludes: tuple[str, ...] = ()
    """texts that no string may contain, keys included (see `forbidden_substrings`)"""
    whitespace: Whitespace = "formatted"
    number_digits: NumberDigits = "bounded"
    separators: tuple[str, str] = (",", ":")
    """regular expressions for what separates items and members, and a key and its value; white space is added"""
    source: str | None = None
    """a text that strings and numbers are taken from (see `value_source`)"""
