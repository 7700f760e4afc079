"""The context of one compile: the grammar, options and caches that all parts of a schema share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dotllm.arrays import Int32
from dotllm.grammar.grammar import Expression, Grammar, Rule
from dotllm.languages.json_schema.strings.forbidden_substrings import ForbiddenSubstrings


def _of_ascii() -> Int32:
    return np.zeros(128, np.int32)


@dataclass(slots=True)
class Context:
    """One per grammar. ``memo`` maps a language (or another key) to the call of the rule made for it. ``forbidden``:
    the texts that no string may contain. ``bounded_numbers``: only bounded numbers are written (see that module).

    The other fields are for `additional_keys`. ``keys_except`` maps names, and the beginnings among them, to the call
    of the rule for all keys but these; ``undefined``: the rules among these that have no body yet, each with the text
    of its names. ``letters``: the expression of each ASCII character that has been ``spelled``, else 0.
    ``default_edges``: the edges by the characters that they leave out, as bits; ``single_default_edges``: those that
    leave out one character, by that character; at 0, the edge that leaves out none.
    """

    grammar: Grammar
    whitespace: Expression  # between the tokens of a document; may be empty
    memo: dict[object, Expression] = field(default_factory=dict)
    keys_except: dict[tuple[frozenset[str], tuple[str, ...]], Expression] = field(default_factory=dict)
    undefined: list[tuple[Rule, str]] = field(default_factory=list)
    letters: Int32 = field(default_factory=_of_ascii)
    spelled: set[str] = field(default_factory=set)
    default_edges: dict[int, Expression] = field(default_factory=dict)
    single_default_edges: Int32 = field(default_factory=_of_ascii)
    forbidden: ForbiddenSubstrings | None = None
    bounded_numbers: bool = True

    def copied(self, grammar: Grammar) -> Context:
        """A copy for a grammar that begins with this one (`Grammar.begin_with`). `additional_keys.build_ahead` must
        have run: it spells all characters and makes all single default edges, so the copy can share them."""
        memo, keys_except = self.memo.copy(), self.keys_except.copy()
        return Context(
            grammar, self.whitespace, memo, keys_except, [], self.letters, self.spelled, {}, self.single_default_edges,
            self.forbidden, self.bounded_numbers,
        )  # fmt: skip
