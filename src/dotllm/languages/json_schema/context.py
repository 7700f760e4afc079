"""What the parts of one schema share while their grammar is being built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dotllm.arrays import Int32
from dotllm.grammar.grammar import Expression, Grammar


@dataclass(slots=True)
class Context:
    """One per grammar. ``memo``: the call of the rule that was made for a language (or another key). ``letters``: the
    expression of each ASCII character that has been asked for, else 0. ``ways_out``: see `string_network.all_but`."""

    grammar: Grammar
    whitespace: Expression  # between the tokens of a document; may be empty
    memo: dict[object, Expression] = field(default_factory=dict)
    letters: Int32 = field(default_factory=lambda: np.zeros(128, np.int32))
    ways_out: dict[tuple[int, int], Expression] = field(default_factory=dict)
