"""What the parts of one schema share while their grammar is being built."""

from __future__ import annotations

from dataclasses import dataclass, field

from dotllm.grammar.grammar import Expression, Grammar


@dataclass(slots=True)
class Context:
    """One per grammar. ``memo``: the call of the rule that was made for a language (or another key)."""

    grammar: Grammar
    whitespace: Expression  # between the tokens of a document; may be empty
    memo: dict[object, Expression] = field(default_factory=dict)
