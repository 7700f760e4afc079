"""The numbers of the automaton in one place: kinds of nodes, the arrays of an `Nfa`, and how building one can end.

Kernels take plain ints, so each enumeration is repeated as ints: Numba does not treat its members as constants.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dotllm.arrays import Int32
from dotllm.charset import CharSet


class NodeKind(IntEnum):
    """The action of a node; ``a`` and ``b`` are the two ints of the node."""

    PLAIN = 0  # no action: only epsilons leave it; it is in no closure, but may have one
    BYTE = 1  # has byte edges
    CALL = 2  # push return node b, continue at a (a rule's start)
    ENTER = 3  # push the counter of loop a, continue at its body (b = 0), or at one of its parts, which begin at b
    END = 4  # one round of loop a is over: pop its counter, then leave or go round again
    # In an unordered sequence, b > 0: continue at a part; b < 0: the end of a part. The number of the END node tells
    # which part (the parts begin at -b, and their ends follow in the same order).
    # In a counted network, ENTER and END continue at the transitions of a state, which begin at node abs(b); b < 0: the
    # state is final. A transition's a is the least number of edges from there to a final state; its b is the number of
    # transitions of the state that follow it.
    RETURN = 5  # pop a return node
    TOKENS = 6  # one token of token set a, then b
    ACCEPT = 7  # the text may end here


N_PLAIN, N_BYTE, N_CALL, N_ENTER, N_END, N_RETURN, N_TOKENS, N_ACCEPT = map(int, NodeKind)
RETURN_NODE = 0  # the one RETURN node
ACCEPT_NODE = 1  # the one ACCEPT node


class NfaArray(IntEnum):
    """The arrays of an NFA of ``n`` nodes, ``e`` byte edges, ``k`` byte classes, ``l`` loops."""

    KIND = 0  # [n]
    A = 1  # [n]
    B = 2  # [n]
    RANK = 3  # [n] order in which pushes (CALL, ENTER) must be carried out: left corners first
    CHARSET = 4  # [n] index into charsets: the node consumes one whole code point of that set and nothing else; or -1
    EDGE_START = 5  # [n + 1]
    EDGE_BYTES = 6  # [e] low | high << 8
    EDGE_TARGET = 7  # [e]
    CLOSURE_START = 8  # [n + 1]
    CLOSURE = 9  # for each node that is a target: nodes with an action that are reached without consuming; RETURN comes
    # first where recursion can put the node's frames on top of each other (`nfa_passes.recursive_returns`), else last
    LOOP_BODY = 10  # [l]
    LOOP_AFTER = 11  # [l]
    LOOP_MIN = 12  # [l] of an unordered sequence: required parts | parts that come at most once << 15; of a counted
    # network: -1 - the largest number of edges from one of its states to the nearest final one
    LOOP_MAX = 13  # [l] -1: no limit; less: an unordered sequence of -2 - loop_max parts, whose body is its separator
    CLASS_OF = 14  # [256]
    CLASS_BYTE = 15  # [k] one byte of each class


HEAD = len(NfaArray) + 2
"""The ints of `Nfa.block` before its arrays: where each array begins, where the last one ends, the start node."""

# How building an automaton ends.
DONE, UNSATISFIABLE, TOO_MANY_CLOSURES, LEFT_RECURSIVE, TOO_MANY_NODES = range(5)


# The nondeterministic pushdown automaton of a grammar, as one flat array.
#
# It has no epsilon edges. If a node can be jumped to, its closure lists the nodes with an action that are reached from
# it. Nodes without an action keep their numbers, but are in no closure. A node's action is its kind. Because some
# actions call other parts and return, this is a recursive transition network (W. A. Woods, 1970). Its arrays follow
# one another in the order of `NfaArray`, which is also the order of their slots in the arena of the machine
# (`automata.machine`), so making an arena takes one copy.


class Nfa(NamedTuple):
    """See the comment above. ``block``: `HEAD` ints, then the arrays."""

    block: Int32
    charsets: list[CharSet]
    charset_uses: list[int]  # how often each charset occurs in `NfaArray.CHARSET`
    token_sets: list[tuple[frozenset[int], bool]]
    unique_nodes: frozenset[int]  # nodes whose byte is the bracket of `Grammar.unique_open`

    def part(self, which: NfaArray) -> Int32:
        """A view of one array."""
        return self.block[self.block[which] : self.block[which + 1]]
