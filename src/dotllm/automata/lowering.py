"""Grammar → Nfa: flatten the grammar's Python lists into arrays, build nodes and edges, then finish them.

The arrays the kernels write into are guessed from the size of the grammar and doubled when a kernel says that they
were too small; the node budget ends that (a grammar can be exponentially larger than its text, since every use of an
expression that is not a rule is a copy).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.charset import CharSet
from dotllm.automata.finish import Unfinished, finish
from dotllm.automata.nfa import Nfa
from dotllm.automata.thompson import EDGES, EPSILONS, LOOPS, NODES, thompson
from dotllm.errors import BudgetExceeded, InvalidSpec
from dotllm.grammar.grammar import Grammar

NODE_BUDGET = 4_000_000
LARGE_CHARSET = 24  # from this size on a character class is worth the vocabulary's precomputed rows

_NONE = np.zeros(0, np.int32)
_ALL_BYTES = np.ones(256, np.bool_)


@lru_cache(maxsize=4096)
def _utf8_flat(charset: CharSet) -> tuple[int, ...]:
    flat: list[int] = []
    for sequence in charset.utf8():
        flat.append(len(sequence))
        flat.extend(low | high << 8 for low, high in sequence)
    return tuple(flat)


@lru_cache(maxsize=4096)
def _byte_ranges(mask: int) -> tuple[int, ...]:
    out: list[int] = []
    byte = 0
    while byte < 256:
        if mask >> byte & 1:
            low = byte
            while byte < 255 and mask >> (byte + 1) & 1:
                byte += 1
            out.append(low | byte << 8)
        byte += 1
    return tuple(out)


def _flatten(parts: list[tuple[int, ...]]) -> tuple[Int32, Int32]:
    """CSR of int tuples."""
    starts = np.zeros(len(parts) + 1, np.int32)
    flat: list[int] = []
    for i, part in enumerate(parts):
        flat.extend(part)
        starts[i + 1] = len(flat)
    return starts, np.array(flat, np.int32)


def _words(grammar: Grammar) -> tuple[Int32, Int32, Int32, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    sets = grammar.literal_sets
    if not sets:
        return np.zeros(1, np.int32), _NONE, _NONE, np.zeros(0, np.uint8)
    starts = np.zeros(len(sets) + 1, np.int32)
    np.cumsum([len(words) for words in sets], out=starts[1:])
    lengths = np.array([len(word) for words in sets for word in words], np.int32)
    offsets = np.zeros(len(lengths), np.int32)
    np.cumsum(lengths[:-1], out=offsets[1:])
    # a bytearray, because kernels take writable arrays only
    data = np.frombuffer(bytearray(b"".join(b"".join(words) for words in sets)), np.uint8)
    return starts, offsets, lengths, data


def lower(grammar: Grammar, alive_bytes: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> Nfa:
    """The NFA of ``grammar``. ``alive_bytes`` [256] bool: bytes that occur in some token (default: all).

    Raises InvalidSpec if nothing satisfies the grammar, Unsupported for left recursion, BudgetExceeded beyond
    NODE_BUDGET nodes.
    """
    for rule, body in enumerate(grammar.rule_body):
        if body is None:
            raise InvalidSpec(f"rule {grammar.rule_names[rule]!r} is used but not defined")
    byte_start, byte_ranges = _flatten([_byte_ranges(mask) for mask in grammar.bytesets])
    char_start, char_seqs = _flatten([_utf8_flat(charset) for charset in grammar.charsets])
    marked = np.array([charset.size >= LARGE_CHARSET for charset in grammar.charsets], np.int32)
    set_start, word_offset, word_length, word_bytes = _words(grammar)
    bodies = np.array(grammar.rule_body, np.int32)
    source = [np.frombuffer(x, np.int32) if len(x) else _NONE for x in (grammar.kind, grammar.a, grammar.b, grammar.c)]
    children = np.frombuffer(grammar.children, np.int32) if len(grammar.children) else _NONE
    data = np.frombuffer(bytearray(grammar.data), np.uint8)
    size = 64 + 4 * len(grammar) + 2 * len(grammar.data) + len(grammar.children) + len(word_bytes) + 8 * len(char_seqs)
    longest = int(word_length.max(initial=0))
    while True:
        kind, a, b = np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
        charset = np.full(size, -1, np.int32)
        eps, edges = np.empty((size, 2), np.int32), np.empty((2 * size, 3), np.int32)
        loops = np.empty((size // 8 + 8, 4), np.int32)
        rule_start = np.full(len(bodies), -1, np.int32)
        count = np.zeros(8, np.int32)
        stack = np.empty((size + longest, 3), np.int32)
        start = thompson(
            *source, children, data, byte_start, byte_ranges, char_start, char_seqs, marked,
            set_start, word_offset, word_length, word_bytes, bodies, grammar.start,
            kind, a, b, charset, eps, edges, loops, rule_start, stack, count,
        )  # fmt: skip
        if start >= 0:
            break
        size *= 2
        if size > 2 * NODE_BUDGET:
            raise BudgetExceeded(f"the grammar needs more than {NODE_BUDGET} automaton nodes", keyword="size")
    n = int(count[NODES])
    raw = Unfinished(
        int(start), kind[:n].copy(), a[:n], b[:n], eps[: count[EPSILONS]], edges[: count[EDGES]],
        loops[: count[LOOPS]].copy(),
    )  # fmt: skip
    done = finish(raw, _ALL_BYTES if alive_bytes is None else alive_bytes)
    columns = np.ascontiguousarray(raw.loops.T)
    return Nfa(
        kind=done.kind,
        a=raw.a,
        b=raw.b,
        rank=done.rank,
        charset=charset[:n],
        edge_start=done.edge_start,
        edge_bytes=done.edge_bytes,
        edge_target=done.edge_target,
        closure_start=done.closure_start,
        closure=done.closure,
        loop_body=columns[0],
        loop_after=columns[1],
        loop_min=columns[2],
        loop_max=columns[3],
        class_of=done.class_of,
        class_byte=done.class_byte,
        start=raw.start,
        charsets=grammar.charsets,
        token_sets=grammar.token_sets,
        unique_nodes=frozenset(int(rule_start[rule]) for rule in grammar.unique_rules if rule_start[rule] >= 0),
    )
