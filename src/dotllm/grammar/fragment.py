"""A piece of grammar that is built once and copied into many grammars.

Formats, shared JSON rules and the results of the DFA algebra do not depend on the schema that uses them. Building them
again, node by node, would take most of a compile. A fragment holds its nodes as NumPy arrays with relative references,
so copying it takes a dozen array operations, whatever its size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dotllm.charset import CharSet
from dotllm.grammar import kinds as K
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.grammar.kinds import UNDEFINED

_FIRST = 2  # nodes 0 and 1 are EMPTY and NEVER in every grammar
_SHARED = (K.BYTES, K.CHARS)  # a grammar keeps one node per set
_DATA, _CHILDREN, _LITERALS, _RULES = range(1, 5)
_REFERS_TO = {
    K.LITERAL: _DATA, K.LITERALS: _LITERALS, K.CALL: _RULES,
    **dict.fromkeys((K.SEQ, K.ALT, K.NETWORK, K.UNORDERED), _CHILDREN),
}  # fmt: skip


class Fragment:
    """A whole grammar (its start and rules) as relocatable arrays. Immutable; may be used by several threads.

    Takes ownership of ``grammar``, which must have no TOKENS nodes and no undefined rules.
    """

    def __init__(self, grammar: Grammar) -> None:
        kind = np.array(grammar.kind, np.int32)
        a = np.array(grammar.a, np.int32)
        if (kind == K.TOKENS).any() or UNDEFINED in grammar.rule_body:
            raise ValueError("a fragment cannot contain token nodes or undefined rules")
        shared = np.isin(kind, _SHARED)
        own = ~shared
        own[:_FIRST] = False
        self._size = len(kind)
        self._own = np.flatnonzero(own)
        self._kind = kind[own]
        self._a = a[own]
        self._b = np.array(grammar.b, np.int32)[own]
        self._c = np.array(grammar.c, np.int32)[own]
        # The array of the grammar that each node's ``a`` is an index into; 0: none of these.
        self._refers_to = np.array([_REFERS_TO.get(of, 0) for of in self._kind.tolist()], np.intp)
        self._to_nodes = np.flatnonzero(self._kind == K.REPEAT)
        self._repeated = self._a[self._to_nodes]
        self._children = np.array(grammar.children, np.int32)
        self._child_nodes = self._expressions_in_children()
        self._inner = self._children[self._child_nodes]
        self._data = bytes(grammar.data)
        self._literal_sets = grammar.literal_sets
        self._rule_names = grammar.rule_names
        self._rule_bodies = np.array(grammar.rule_body, np.int32)
        self._start = grammar.start
        self._shared = np.flatnonzero(shared)
        self._sets: list[int | CharSet] = [
            grammar.byteset_mask(int(a[node])) if kind[node] == K.BYTES else grammar.charsets[a[node]]
            for node in self._shared
        ]

    def _expressions_in_children(self) -> NDArray[np.intp]:
        """The indices of those ``children`` that are expressions (a NETWORK also keeps its states there)."""
        result = np.zeros(len(self._children), np.bool_)
        for at in np.flatnonzero(self._refers_to == _CHILDREN):
            first, size = self._a[at], self._b[at]
            if self._kind[at] == K.NETWORK:
                edges = first + 3 + self._children[first + 2]
                result[edges + 1 : first + size : 3] = True
            else:
                result[first : first + size] = True
        return np.flatnonzero(result)

    def copy_into(self, grammar: Grammar) -> Expression:
        """Add the nodes and rules to ``grammar``; returns the start expression. Copies again on every call."""
        place = np.empty(self._size, np.int32)
        place[0], place[1] = grammar.empty(), grammar.never()
        if self._sets:
            place[self._shared] = grammar.sets(self._sets)
        place[self._own] = np.arange(len(grammar), len(grammar) + len(self._own), dtype=np.int32)
        begins = (0, len(grammar.data), len(grammar.children), len(grammar.literal_sets), len(grammar.rule_names))
        a = self._a + np.array(begins, np.int32)[self._refers_to]
        if len(self._repeated):
            a[self._to_nodes] = place[self._repeated]
        children = self._children.copy()
        children[self._child_nodes] = place[self._inner]
        grammar.kind.frombytes(self._kind.tobytes())
        grammar.a.frombytes(a.tobytes())
        grammar.b.frombytes(self._b.tobytes())
        grammar.c.frombytes(self._c.tobytes())
        grammar.children.frombytes(children.tobytes())
        grammar.data += self._data
        grammar.literal_sets.extend(self._literal_sets)
        grammar.add_rules(self._rule_names, place[self._rule_bodies])
        return Expression(int(place[self._start]))
