"""A piece of grammar that is built once and copied into many.

Formats, shared JSON rules and the results of the DFA algebra do not depend on the schema they stand in. Building them
anew, node by node, would cost most of a compile; a fragment is its nodes as NumPy arrays with all references relative,
so copying one is a dozen array operations whatever its size.
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


class Fragment:
    """The whole of a grammar (its start and rules) as relocatable arrays. Immutable; may be used by several threads.

    Takes over ``grammar``, which must not have TOKENS nodes and in which every rule is defined.
    """

    def __init__(self, grammar: Grammar) -> None:
        kind = np.array(grammar.kind, np.int32)
        a = np.array(grammar.a, np.int32)
        if (kind == K.TOKENS).any() or UNDEFINED in grammar.rule_body:
            raise ValueError("a fragment cannot have token nodes or undefined rules")
        shared = np.isin(kind, _SHARED)
        own = ~shared
        own[:_FIRST] = False
        self._size = len(kind)
        self._own = np.flatnonzero(own)
        self._kind = kind[own]
        self._a = a[own]
        self._b = np.array(grammar.b, np.int32)[own]
        self._c = np.array(grammar.c, np.int32)[own]
        # The nodes whose ``a`` is an index into …
        self._to_data = np.flatnonzero(self._kind == K.LITERAL)
        self._to_children = np.flatnonzero(np.isin(self._kind, (K.SEQ, K.ALT, K.NETWORK, K.UNORDERED)))
        self._to_nodes = np.flatnonzero(self._kind == K.REPEAT)
        self._to_literals = np.flatnonzero(self._kind == K.LITERALS)
        self._to_rules = np.flatnonzero(self._kind == K.CALL)
        self._children = np.array(grammar.children, np.int32)
        self._child_nodes = self._expressions_in_children()
        self._data = bytes(grammar.data)
        self._literal_sets = grammar.literal_sets
        self._rule_names = grammar.rule_names
        self._rule_bodies = np.array(grammar.rule_body, np.int32)
        self._start = grammar.start
        self._sets: list[tuple[int, int | CharSet]] = [
            (int(node), grammar.byteset_mask(int(a[node])) if kind[node] == K.BYTES else grammar.charsets[a[node]])
            for node in np.flatnonzero(shared)
        ]

    def _expressions_in_children(self) -> NDArray[np.intp]:
        """Which places of ``children`` hold expressions (a NETWORK also keeps its states there)."""
        found = np.zeros(len(self._children), np.bool_)
        for at in self._to_children:
            first, size = self._a[at], self._b[at]
            if self._kind[at] == K.NETWORK:
                edges = first + 3 + self._children[first + 2]
                found[edges + 1 : first + size : 3] = True
            else:
                found[first : first + size] = True
        return np.flatnonzero(found)

    def copy_into(self, grammar: Grammar) -> Expression:
        """Add the nodes and rules to ``grammar``; returns the start expression. Copies again on every call."""
        place = np.empty(self._size, np.int32)
        place[0], place[1] = grammar.empty(), grammar.never()
        for node, members in self._sets:
            place[node] = grammar.byteset(members) if isinstance(members, int) else grammar.chars(members)
        place[self._own] = np.arange(len(grammar), len(grammar) + len(self._own), dtype=np.int32)
        a = self._a.copy()
        a[self._to_data] += len(grammar.data)
        a[self._to_children] += len(grammar.children)
        a[self._to_literals] += len(grammar.literal_sets)
        a[self._to_rules] += len(grammar.rule_names)
        a[self._to_nodes] = place[a[self._to_nodes]]
        children = self._children.copy()
        children[self._child_nodes] = place[children[self._child_nodes]]
        grammar.kind.frombytes(self._kind.tobytes())
        grammar.a.frombytes(a.tobytes())
        grammar.b.frombytes(self._b.tobytes())
        grammar.c.frombytes(self._c.tobytes())
        grammar.children.frombytes(children.tobytes())
        grammar.data += self._data
        grammar.literal_sets.extend(self._literal_sets)
        grammar.add_rules(self._rule_names, place[self._rule_bodies])
        return Expression(int(place[self._start]))

    def __len__(self) -> int:
        return len(self._kind)
