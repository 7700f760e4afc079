"""The nondeterministic pushdown automaton of a grammar, as flat arrays.

Nodes are the *significant* nodes only in effect: epsilon edges are gone, replaced by closure lists. Every node has
one action, its kind; the arrays are what the machine (`automata.machine`) copies into its arena.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dotllm.arrays import Int32
from dotllm.automata.charset import CharSet


class NodeKind(IntEnum):
    """What happens at a node; ``a`` and ``b`` are the two ints of the node."""

    PLAIN = 0  # nothing: only ever reached through closures
    BYTE = 1  # has byte edges
    CALL = 2  # push return node b, continue at a (a rule's start)
    ENTER = 3  # push the counter of loop a, continue at its body (b = 0), or at one of its parts, which begin at b
    END = 4  # one round of loop a is over: pop its counter, then leave or go round again; b > 0: go on at a part
    # In a counted network, ENTER and END go on at the ways out of a state, which begin at node abs(b); b < 0: it is a
    # final one. A way out has as its a how many edges it takes at least from there to a final state, and as its b how
    # many more ways out follow it.
    RETURN = 5  # pop a return node
    TOKENS = 6  # one token of token set a, then b
    ACCEPT = 7  # the text may end here


RETURN_NODE = 0  # the one RETURN node
ACCEPT_NODE = 1  # the one ACCEPT node


class Nfa(NamedTuple):
    """See `NodeKind`. ``n`` nodes, ``e`` byte edges, ``k`` byte classes, ``l`` loops; all int32."""

    kind: Int32  # [n]
    a: Int32  # [n]
    b: Int32  # [n]
    rank: Int32  # [n] order in which pushes (CALL, ENTER) must be carried out: left corners first
    charset: (
        Int32  # [n] index into charsets, or -1: the node consumes one whole code point of that set and nothing else
    )
    edge_start: Int32  # [n + 1]
    edge_bytes: Int32  # [e] low | high << 8
    edge_target: Int32  # [e]
    closure_start: Int32  # [n + 1]
    closure: Int32  # nodes with an action that are reached without consuming anything, per node that is a target
    loop_body: Int32  # [l]
    loop_after: Int32  # [l]
    # [l] of an unordered sequence: required parts | parts that come at most once << 15; of a counted network: -1 - the
    # most edges that any of its states is from a final one
    loop_min: Int32
    loop_max: (
        Int32  # [l] -1: no limit; below: an unordered sequence of -2 - loop_max parts, whose body is its separator
    )
    class_of: Int32  # [256]
    class_byte: Int32  # [k] one byte of each class
    start: int
    charsets: list[CharSet]
    token_sets: list[tuple[frozenset[int], bool]]
    unique_nodes: frozenset[int]  # those whose byte is the bracket of `Grammar.unique_open`
