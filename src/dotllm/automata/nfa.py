"""The nondeterministic pushdown automaton of a grammar, as one flat array.

Epsilon edges are gone. Where a node can be jumped to, its closure lists the nodes with an action that are reached from
it. Nodes without an action keep their numbers, but are in no closure. A node's action is its kind. As some actions call
other parts and return, this is a recursive transition network (W. A. Woods, 1970). Its arrays stand one behind the
other in the order of `NfaArray`, which is that of their slots in the arena of the machine (`automata.machine`): making
an arena is one copy.
"""

from __future__ import annotations

from typing import NamedTuple

from dotllm.arrays import Int32
from dotllm.automata.kinds import NfaArray
from dotllm.charset import CharSet


class Nfa(NamedTuple):
    """See the module. ``block``: `HEAD`, then the parts."""

    block: Int32
    charsets: list[CharSet]
    charset_uses: list[int]  # at how many places each of them is, in `NfaArray.CHARSET`
    token_sets: list[tuple[frozenset[int], bool]]
    unique_nodes: frozenset[int]  # those whose byte is the bracket of `Grammar.unique_open`

    def part(self, which: NfaArray) -> Int32:
        """A view of one array."""
        return self.block[self.block[which] : self.block[which + 1]]
