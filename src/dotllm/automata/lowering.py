"""Grammar → Nfa: flattens the grammar's Python lists into arrays, builds nodes and edges, then finishes them.

All but the first step is one kernel: for an ordinary schema, calling several would cost as much as their work.

The sizes of the arrays that the kernel fills are guessed from the size of the grammar and doubled when they turn out
to be too small. The node budget ends this: an automaton can be exponentially larger than the text of its grammar,
because every use of an expression that is not a rule is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate, chain

import numba as nb
import numpy as np

from dotllm import allocate, cancellation
from dotllm.arrays import Bool, Int32, Int64, UInt8
from dotllm.automata.kinds import DONE, LEFT_RECURSIVE, TOO_MANY_CLOSURES, TOO_MANY_NODES, UNSATISFIABLE, Nfa
from dotllm.automata.nfa_passes import finish
from dotllm.automata.thompson import EDGES, EPSILONS, LOOPS, NODES, Builder, GrammarArrays, thompson
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError, UnsupportedError
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.kinds import UNDEFINED
from dotllm.jit import B1, I1, U1, I, kernel
from dotllm.memo import memoised

NODE_BUDGET = 4_000_000
LARGE_CHARSET = 24  # character sets of at least this size are worth the vocabulary's precomputed rows

_NONE = np.zeros(0, np.int32)
_NO_BYTES = np.zeros(0, np.uint8)
_ALL_BYTES = np.ones(256, np.bool_)
_MOST_NAMED = 4  # maximum number of bytes named in a refusal; each takes up to nine lowerings


@memoised(lambda value, charset: charset.nbytes + len(value[0]), limit=8 << 20)
def _character_set(charset: CharSet) -> tuple[bytes, bool]:
    """The UTF-8 sequences of a set, each as a number of bytes and their ranges, as native int32; and whether the set is
    large."""
    flat: list[int] = []
    for sequence in charset.utf8():
        flat.append(len(sequence))
        flat.extend(low | high << 8 for low, high in sequence)
    return np.array(flat, np.int32).tobytes(), charset.size >= LARGE_CHARSET


@memoised(lambda csr, charsets: csr[1].nbytes + sum(charset.nbytes for charset in charsets), limit=8 << 20)
def _character_sets(charsets: tuple[CharSet, ...]) -> tuple[Int32, Int32, Int32]:
    """CSR of the sequences of all sets, and which sets are large. Most schemas have the same few sets."""
    result = [_character_set(charset) for charset in charsets]
    starts = np.array([0, *accumulate(len(flat) >> 2 for flat, _ in result)], np.int32)
    # a bytearray, because kernels take only writable arrays
    sequences = np.frombuffer(bytearray(b"".join([flat for flat, _ in result])), np.int32)
    return starts, sequences, np.array([large for _, large in result], np.int32)


def _words(grammar: Grammar) -> tuple[Int32, Int32, Int32, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    sets = grammar.literal_sets
    if not sets:
        return np.zeros(1, np.int32), _NONE, _NONE, np.zeros(0, np.uint8)
    words = [*chain.from_iterable(sets)]
    starts = np.fromiter(accumulate(map(len, sets), initial=0), np.int32, len(sets) + 1)
    lengths = np.fromiter(map(len, words), np.int32, len(words))
    offsets = lengths.cumsum(dtype=np.int32) - lengths
    data = np.frombuffer(bytearray(b"".join(words)), np.uint8)
    return starts, offsets, lengths, data


def lower(grammar: Grammar, alive_bytes: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> Nfa:
    """The NFA of ``grammar``. ``alive_bytes`` bool [256]: bytes that occur in some token (default: all).

    Raises:
        InvalidSpecError: nothing satisfies the grammar, or it uses a rule that is not defined.
        UnsupportedError: the grammar has left recursion, or every text needs a byte that no token has.
        BudgetExceededError: the NFA has more than `NODE_BUDGET` nodes.
    """  # noqa: DOC501 - functions make the errors
    alive = _ALL_BYTES if alive_bytes is None else alive_bytes
    what, nfa = _lower(grammar, alive)
    if nfa is not None:
        return nfa
    if what == UNSATISFIABLE and not alive.all() and _lower(grammar, _ALL_BYTES)[0] != UNSATISFIABLE:
        raise _lacks_bytes(grammar, alive)
    raise _ERRORS[what]()


def _lacks_bytes(grammar: Grammar, alive: Bool) -> UnsupportedError:
    """The refusal of a grammar whose texts all need bytes that are in no token. It names the bytes that would
    suffice."""
    missing = np.flatnonzero(~alive)
    names: list[str] = []
    start = 0  # the missing bytes before this one are not needed
    while (first := _first_needed(grammar, missing, start)) < len(missing):
        if len(names) == _MOST_NAMED:
            names.append("…")
            break
        byte = int(missing[first])
        names.append(f"0x{byte:02X}" + (f" ({chr(byte)!r})" if 0x20 < byte < 0x7F else ""))
        missing = np.concatenate([missing[:first], missing[first + 1 :]])
        start = first
    return UnsupportedError(
        "every text that satisfies this specification needs bytes that no token of the vocabulary contains, such as "
        f"{', '.join(names)}",
        keyword="vocabulary",
        code="tokenizer",
    )


def _first_needed(grammar: Grammar, missing: Int64, start: int) -> int:
    """The least i from ``start`` on such that nothing satisfies ``grammar`` without ``missing[: i + 1]``;
    ``len(missing)`` if some text needs none of them."""
    low, high = start, len(missing)
    while low < high:
        middle = (low + high) // 2
        without = _ALL_BYTES.copy()
        without[missing[: middle + 1]] = False
        if _lower(grammar, without)[0] == UNSATISFIABLE:
            high = middle
        else:
            low = middle + 1
    return low


def _lower(grammar: Grammar, alive: Bool) -> tuple[int, Nfa | None]:
    """DONE and the NFA, or the fault and None."""
    cancellation.check()
    if UNDEFINED in grammar.rule_body:
        name = grammar.rule_names[grammar.rule_body.index(UNDEFINED)]
        raise InvalidSpecError(f"rule {name!r} is used but not defined", code="unknown_rule")
    *nodes, bodies = grammar.arrays()
    data, byte_sets = (np.frombuffer(x, np.uint8) if x else _NO_BYTES for x in (grammar.data, grammar.byteset_bits))
    charsets = _character_sets(tuple(grammar.charsets))
    places = np.empty(len(bodies) + len(grammar.charsets), np.int32)
    what, block = automaton(
        tuple(nodes), data, byte_sets, charsets, _words(grammar), bodies, grammar.start, alive, NODE_BUDGET, places
    )
    if what != DONE:
        return what, None
    unique_nodes = frozenset(int(places[rule]) for rule in grammar.unique_rules if places[rule] >= 0)
    return what, Nfa(block, grammar.charsets, places[len(bodies) :].tolist(), grammar.token_sets, unique_nodes)


_TRIPLE = nb.types.UniTuple(I1, 3)


@kernel(
    nb.types.Tuple((nb.int64, I1))(
        nb.types.UniTuple(I1, 5), U1, U1, _TRIPLE, nb.types.Tuple((I1, I1, I1, U1)), I1, I, B1, I, I1
    )
)
def automaton(
    nodes: tuple[Int32, Int32, Int32, Int32, Int32],
    data: UInt8,
    byte_sets: UInt8,
    charsets: tuple[Int32, Int32, Int32],
    words: tuple[Int32, Int32, Int32, UInt8],
    bodies: Int32,
    start: int,
    alive: Bool,
    budget: int,
    places: Int32,
) -> tuple[int, Int32]:
    """`thompson` with arrays that are large enough, then `finish`. Returns the result of `finish`, or TOO_MANY_NODES.

    The arrays: see `GrammarArrays`. alive [256]: bytes that occur in some token. places [rules + charsets] is filled
    with the nodes at which rules start (-1: not reached), then with the number of uses of each large character set.
    """
    kind, a, b, c, children = nodes
    char_start, char_sequences, char_marked = charsets
    set_start, word_offset, word_length, word_bytes = words
    grammar = GrammarArrays(
        kind, a, b, c, children, data, byte_sets, char_start, char_sequences, char_marked,
        set_start, word_offset, word_length, word_bytes, bodies,
    )  # fmt: skip
    rule_start, charset_uses = places[: bodies.shape[0]], places[bodies.shape[0] :]
    longest = 0
    for i in range(word_length.shape[0]):
        longest = max(longest, word_length[i])
    # Enough for nearly all grammars.
    size = 64 + kind.shape[0] + children.shape[0] + data.shape[0] + word_bytes.shape[0] + 8 * char_sequences.shape[0]
    while True:
        builder = Builder(
            allocate.ints(size),
            allocate.ints(size),
            allocate.ints(size),
            allocate.ints(size),
            allocate.int_rows(size, 2),
            allocate.int_rows(2 * size, 3),
            allocate.int_rows(size // 8 + 8, 4),
            allocate.int_rows(size + longest, 3),
            allocate.zero_ints(5),
        )
        rule_start[:] = -1
        charset_uses[:] = 0
        root = thompson(grammar, start, builder, rule_start, charset_uses)
        if root >= 0:
            break
        size *= 2
        if size > 2 * budget:
            return TOO_MANY_NODES, allocate.ints(0)
    used = builder.used
    n = used[NODES]
    return finish(
        root, builder.kind[:n], builder.a[:n], builder.b[:n], builder.charset[:n], builder.epsilons[: used[EPSILONS]],
        builder.edges[: used[EDGES]], builder.loops[: used[LOOPS]], alive,
    )  # fmt: skip


_ERRORS: dict[int, Callable[[], SpecError]] = {
    TOO_MANY_NODES: partial(
        BudgetExceededError,
        f"the grammar needs more than {NODE_BUDGET} automaton nodes",
        keyword="size",
        help="split it into several requests, each with its own specification",
    ),
    UNSATISFIABLE: partial(InvalidSpecError, "no text satisfies this specification"),
    TOO_MANY_CLOSURES: partial(
        BudgetExceededError,
        "the grammar needs too many automaton transitions",
        keyword="size",
        help="split it into several requests, each with its own specification",
    ),
    LEFT_RECURSIVE: partial(
        UnsupportedError, "the grammar is left-recursive and was not rewritten", keyword="left recursion"
    ),
}
