"""The kinds of expressions of a `Grammar`, numbered in one place.

Kernels, and functions that are called for each node, take plain ints: Numba does not treat members of an enumeration
as constants, and looking one up costs as much as appending a node.
"""

from __future__ import annotations

from enum import IntEnum


class ExpressionKind(IntEnum):
    """What an expression node is. The comments explain its three ints, ``a``, ``b`` and ``c``."""

    EMPTY = 0  # the empty string
    NEVER = 1  # no text at all
    LITERAL = 2  # data[a : a+b]
    BYTES = 3  # one byte of byteset_mask(a)
    CHARS = 4  # one code point of charsets[a], as UTF-8
    SEQ = 5  # children[a : a+b], one after another
    ALT = 6  # any one of children[a : a+b]
    REPEAT = 7  # a, between b and c times (c = -1: no limit)
    CALL = 8  # rule a
    LITERALS = 9  # one of the byte strings literal_sets[a] (sorted, distinct)
    NETWORK = 10  # an automaton with expressions on its edges: children[a : a+b], at most c of them (0: any number)
    TOKENS = 11  # one token of token_sets[a], by id
    UNORDERED = 12  # parts in any order: children[a : a+b], see Grammar.unordered


EMPTY, NEVER, LITERAL, BYTES, CHARS, SEQ, ALT, REPEAT, CALL, LITERALS, NETWORK, TOKENS, UNORDERED = map(
    int, ExpressionKind
)

UNDEFINED = -1
"""The body of a rule that has only been declared."""
