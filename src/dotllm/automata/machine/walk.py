"""Kernels: walk the token trie together with the machine, on the walk's own stack, and inspect character sets.

The walk's stacks are made of cells (symbol, cell below) in the region LOCAL. A mask makes each cell once, so equal
stacks have equal handles, and facts about a handle hold wherever the walk returns to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64
from dotllm.automata.kinds import N_BYTE, N_END, N_RETURN
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.frames import canonical
from dotllm.automata.machine.intern import mix, triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans import TRIE, Trie, fits
from dotllm.automata.machine.run import reduce, step
from dotllm.automata.machine.states import intern_state
from dotllm.automata.machine.subtrees import BIT, CONTROL, FIRST_LEAD, HEIGHT_AT, HIGHEST, LAST_LEAD
from dotllm.jit import I1, I2, I, inner_kernel

I2L = nb.int64[:, ::1]

_LONG_WALK = 4096  # nodes
_ANY_STACK = -1  # in place of a handle
_LOOPS = 256  # slots for the loops and chains of a walk
_MOST_LOOPS, _MOST_CHAINS = 64, 256  # how many of them a walk looks for
_WORTH_FINDING = 16  # nodes below a loop: for fewer, stepping through them takes less time
_WORTH_A_CHAIN = 128  # the same for a chain
LEAST_BELOW = 2  # the same for a loop that has been found
_CHAIN = 16  # configurations of a chain
_ENDLESS = 1 << 30  # the length of a loop
_MANY_CHARACTERS = 10  # of ASCII, the least set of a chain: almost every subtree has characters outside a smaller one

CELL = 6  # ints: symbol, handle below, real stack, its depth + 1, first cell of a bucket, next cell in its own bucket


@inner_kernel(I(MEM, I), inlined=True)
def local_symbol(mem: Int32, handle: int) -> int:
    """The canonical symbol on top of a walk's stack; counts it if it belongs to the real stack."""
    at = mem[L.AT_LOCAL] + CELL * handle
    if mem[at + 3] > mem[L.H_CONSULTED]:
        mem[L.H_CONSULTED] = mem[at + 3]
    return I(mem[at])


@inner_kernel(I(MEM, I))
def alike(mem: Int32, symbol: int) -> int:
    """The canonical symbol of a real one; under a limit the symbol itself, because its counters are needed. Or an
    error."""
    return symbol if mem[L.H_LEFT] > 0 else canonical(mem, symbol)


@inner_kernel(I(MEM, I, I))
def base_cell(mem: Int32, depth: int, stack: int) -> int:
    """Make the walk's cell for the real stack cell ``stack``, ``depth`` symbols down. Returns its handle, or an error.
    The handles of the first cells are their depths; deeper cells lie among the walk's own."""
    handle = I(depth)
    if depth >= L.BASE_CELLS:
        handle = I(mem[L.H_LOCAL])
        if handle >= mem[L.CAP_LOCAL]:
            return L.FULL - L.LOCAL
        mem[L.H_LOCAL] = handle + 1
    symbol = I(0)
    if stack != 0:
        symbol = alike(mem, mem[mem[L.AT_STACK] + 3 * stack])
        if symbol < 0:
            return symbol
    at = mem[L.AT_LOCAL] + CELL * handle
    mem[at], mem[at + 1], mem[at + 2], mem[at + 3], mem[at + 5] = symbol, -1, stack, depth + 1, -1
    return handle


@inner_kernel(I(MEM, I, I), inlined=True)
def bucket(mem: Int32, symbol: int, below: int) -> int:
    """The number of the hash bucket of the cell with ``symbol`` on top of ``below``."""
    return mix(mix(1, symbol), below) & I(mem[L.CAP_LOCAL] - 1)


@inner_kernel(I(MEM, I, I))
def push_local(mem: Int32, symbol: int, below: int) -> int:
    """The handle of the cell with ``symbol`` on top of ``below``, or an error.

    One stack may have tens of thousands of cells on it, so they are hashed, with as many buckets as there is room for
    cells. Nothing clears the buckets that other masks have filled: a bucket is empty unless it leads to a cell that
    leads back to it. (P. Briggs and L. Torczon, "An efficient representation for sparse sets", LOPLAS 2, 1993.)
    """
    cells, new = mem[L.AT_LOCAL], I(mem[L.H_LOCAL])
    mine = bucket(mem, symbol, below)
    first = I(mem[cells + CELL * mine + 4])
    filled = L.BASE_CELLS <= first < new
    if filled:
        filled = bucket(mem, mem[cells + CELL * first], mem[cells + CELL * first + 1]) == mine
    if not filled:
        first = -1
    result = first
    while result >= 0:
        if mem[cells + CELL * result] == symbol and mem[cells + CELL * result + 1] == below:
            return result
        result = I(mem[cells + CELL * result + 5])
    if new >= mem[L.CAP_LOCAL]:
        return L.FULL - L.LOCAL
    mem[L.H_LOCAL] = new + 1
    at = cells + CELL * new
    mem[at], mem[at + 1], mem[at + 2], mem[at + 3], mem[at + 5] = symbol, below, 0, 0, first
    mem[cells + CELL * mine + 4] = new
    return new


@inner_kernel(I(MEM, I))
def local_below(mem: Int32, handle: int) -> int:
    """The handle of the stack below a handle."""
    at = mem[L.AT_LOCAL] + CELL * handle
    if mem[at + 3] == 0 or mem[at + 1] >= 0:
        return I(mem[at + 1])
    below = base_cell(mem, I(mem[at + 3]), mem[mem[L.AT_STACK] + 3 * mem[at + 2] + 1])
    if below >= 0:
        mem[at + 1] = below
    return below


@inner_kernel(I(MEM, I, I))
def local_apply(mem: Int32, raw: int, handle: int) -> int:
    """`run.resolve_stack` on a walk's own stack. Returns the core state (the new handle is in H_OUT), or an error."""
    states = mem[L.AT_STATE]
    before = handle
    pops = 0
    while mem[states + L.S_WIDTH * raw + L.S_FLAGS] & L.PENDING:
        pops += 1
        raw = reduce(mem, raw, local_symbol(mem, handle))
        if raw <= 0:
            return raw
        handle = local_below(mem, handle)
        if handle < 0:
            return handle
    symbol = I(mem[states + L.S_WIDTH * raw + L.S_PUSH])
    if symbol >= 0:
        symbol = alike(mem, symbol)
        if symbol < 0:
            return symbol
        if pops == 1 and symbol == mem[mem[L.AT_LOCAL] + CELL * before]:
            handle = before  # (this may be a cell of the real stack, which is found by its depth)
        else:
            handle = push_local(mem, symbol, handle)
            if handle < 0:
                return handle
    mem[L.H_OUT] = handle
    return I(mem[states + L.S_WIDTH * raw + L.S_CORE])


# maximum number of steps to find out where the characters beyond ASCII lead, from a loop and in a chain
MOST_STEPS, _MOST_CHAIN_STEPS = 512, 32

# Well-formed UTF-8 (RFC 3629 §4): first bytes, second bytes, length; all further bytes are 80-BF.
_FORMS = np.array(
    [
        (0xC2, 0xDF, 0x80, 0xBF, 2),
        (0xE0, 0xE0, 0xA0, 0xBF, 3),
        (0xE1, 0xEC, 0x80, 0xBF, 3),
        (0xED, 0xED, 0x80, 0x9F, 3),
        (0xEE, 0xEF, 0x80, 0xBF, 3),
        (0xF0, 0xF0, 0x90, 0xBF, 4),
        (0xF1, 0xF3, 0x80, 0xBF, 4),
        (0xF4, 0xF4, 0x80, 0x8F, 4),
    ],
    np.int64,
)


@inner_kernel(I(MEM, I, I, I))
def take_byte(mem: Int32, state: int, handle: int, byte: int) -> int:
    """(state, handle) after one byte: the core state (handle in H_OUT), 0 if dead, or an error. On any stack, a byte
    that pops or pushes counts as dead."""
    cls = mem[mem[L.H_CLASS_OF] + byte]
    raw = I(mem[mem[L.AT_DELTA] + state * mem[L.H_CLASSES] + cls])
    if raw < 0:
        raw = step(mem, state, cls)
    if raw <= 0:
        return raw
    if handle != _ANY_STACK:
        return local_apply(mem, raw, handle)
    mem[L.H_OUT] = _ANY_STACK
    return I(0) if mem[mem[L.AT_STATE] + L.S_WIDTH * raw + L.S_FLAGS] & L.COMPLEX else raw


@inner_kernel(nb.boolean(I))
def starts_form(lead: int) -> bool:
    """Whether the characters with the first byte ``lead`` have other second bytes or another length than those before
    them."""
    for i in range(_FORMS.shape[0]):
        if _FORMS[i, 0] == lead:
            return True
    return False


@inner_kernel(I(MEM, I, I, I, I, I, I))
def beyond_ascii(mem: Int32, state: int, handle: int, lead: int, to: int, to_handle: int, most_steps: int) -> int:
    """Whether every character with the first byte ``lead``, which has just been read, leads to (to, to_handle): 1; 0
    (also if ``most_steps`` steps do not suffice); or an error."""
    form = -1
    for i in range(_FORMS.shape[0]):
        if _FORMS[i, 0] <= lead <= _FORMS[i, 1]:
            form = i
    if form < 0:
        return 0
    length = _FORMS[form, 4]
    states = allocate.longs(4)
    handles = allocate.longs(4)
    byte = allocate.longs(4)
    states[1], handles[1] = state, handle
    states[2] = states[3] = -1
    level = 1  # bytes read
    byte[1] = _FORMS[form, 2] - 1
    steps = 0
    while level > 0:
        byte[level] += 1
        last = _FORMS[form, 3] if level == 1 else 0xBF
        # bytes of one class lead to the same state
        cls = mem[mem[L.H_CLASS_OF] + byte[level] - 1]
        first = byte[level] == (_FORMS[form, 2] if level == 1 else 0x80)
        while byte[level] <= last and not first and mem[mem[L.H_CLASS_OF] + byte[level]] == cls:
            byte[level] += 1
        if byte[level] > last:
            level -= 1
            continue
        after = take_byte(mem, states[level], handles[level], byte[level])
        steps += 1
        if after < 0:
            return after
        if after == 0 or steps > most_steps:
            return 0
        if level == length - 1:
            if after != to or mem[L.H_OUT] != to_handle:
                return 0
        elif after != states[level + 1] or mem[L.H_OUT] != handles[level + 1]:  # (else it has just been examined)
            level += 1
            states[level], handles[level] = after, I(mem[L.H_OUT])
            byte[level] = 0x7F
    return 1


# Loops: configurations to which most characters lead back, as in the body of a string.
#
# A walk of the whole trie meets few loops, but most nodes are below them. If all bytes below a node (`Trie.below`)
# lead back to the loop, all tokens there are allowed, and the walk skips the subtree. So it visits a few thousand
# nodes instead of 266,000. Most loops neither pop nor push, so they are the same on any stack.
#
# Where characters are counted (a string with ``maxLength``, a label of a host name), they do not lead back, but on
# from one configuration to the next: a chain. We follow it for `_CHAIN` characters of the same set. The walk skips a
# subtree if its height is at most the rest of the chain. (Heights count bytes and chains count characters, so this errs
# on the safe side. A subtree without ASCII does not make a walk look for a chain.)

# columns of a table of loops: the configuration, the characters that lead on (as in `Trie.below`), how many of them are
# certain to lead on
_STATE, _HANDLE, _LOW, _HIGH, _LENGTH = range(5)


@inner_kernel(I2L(nb.boolean))
def new_loops(are_needed: bool) -> Int64:
    """An empty table of loops and chains. The last row counts the searches for chains and for loops."""
    loops = np.full((_LOOPS + 1 if are_needed else 1, 5), -1, np.int64)
    loops[-1, :2] = 0
    return loops


class Link(NamedTuple):
    """The step of most characters from a configuration."""

    state: int
    """Where they lead: a core state. L.DEAD: nowhere, or too few lead there. Below 0: an error."""
    handle: int
    low: int
    """These characters (as in `Trie.below`)."""
    high: int


LINK = nb.types.NamedUniTuple(I, 4, Link)


@inner_kernel(LINK(MEM, I, I, I, I))
def find_link(mem: Int32, state: int, handle: int, byte: int, groups: int) -> Link:
    """Find where ``byte`` leads from (state, handle), and which characters lead there, too. A byte below 0: find those
    that lead back to (state, handle). ``groups``: only these groups beyond ASCII are examined."""
    class_of = mem[L.H_CLASS_OF]
    to, to_handle = state, handle
    if byte >= 0:
        to, to_handle = take_byte(mem, state, handle, byte), I(mem[L.H_OUT])
        if to <= 0:
            return Link(to, 0, 0, 0)
    low, high = I(HIGHEST << HEIGHT_AT), I(0)
    cls, leads, count = I(-1), False, 0
    for character in range(0x80):
        if mem[class_of + character] != cls:
            cls = I(mem[class_of + character])
            after = take_byte(mem, state, handle, character)
            if after < 0:
                return Link(after, 0, 0, 0)
            leads = after == to and mem[L.H_OUT] == to_handle
        count += leads
        bit = BIT[character]
        if leads and 0 < bit < 64:
            low |= I(1) << bit
        elif leads and bit >= 64:
            high |= I(1) << (bit - 64)
    if byte >= 0 and count < _MANY_CHARACTERS:
        return Link(I(L.DEAD), 0, 0, 0)
    most_steps = MOST_STEPS if to == state and to_handle == handle else _MOST_CHAIN_STEPS
    asked, asked_handle = I(-1), I(-1)
    for lead in range(FIRST_LEAD, LAST_LEAD + 1):
        is_first, is_new = starts_form(lead), lead == FIRST_LEAD or BIT[lead] != BIT[lead - 1]
        if is_new:
            low |= groups & (I(1) << BIT[lead])
        if (low >> BIT[lead]) & 1 == 0:
            asked = I(-1)
            continue
        if is_first or asked < 0 or mem[class_of + lead] != mem[class_of + lead - 1]:
            after = take_byte(mem, state, handle, lead)
            if is_first or after != asked or mem[L.H_OUT] != asked_handle:
                asked, asked_handle = after, I(mem[L.H_OUT])
                if after > 0:
                    after = beyond_ascii(mem, after, asked_handle, lead, to, to_handle, most_steps)
                if after < 0:
                    return Link(after, 0, 0, 0)
                leads = after == 1
        if not leads:
            low &= ~(I(1) << BIT[lead])
    return Link(to, to_handle, low, high)


@inner_kernel(I(MEM, I, I, I, I))
def chain_byte(mem: Int32, state: int, handle: int, low: int, high: int) -> int:
    """A character of ASCII among (low, high), as in `Trie.below`, if all of them lead from (state, handle) to one
    place; else -1. (Usually the first few show that they do not.)"""
    class_of = mem[L.H_CLASS_OF]
    cls, to, to_handle, agreed = I(-1), I(L.DEAD), I(0), I(-1)
    for byte in range(CONTROL, 0x80):
        is_asked = (low >> BIT[byte] if BIT[byte] < 64 else high >> (BIT[byte] - 64)) & 1 != 0
        if is_asked and mem[class_of + byte] != cls:
            cls = I(mem[class_of + byte])
            after = take_byte(mem, state, handle, byte)
            if after <= 0 or (to > 0 and (after != to or mem[L.H_OUT] != to_handle)):
                return -1  # (if the walk takes this byte, it meets the error itself)
            to, to_handle, agreed = after, I(mem[L.H_OUT]), I(byte)
    return agreed


@inner_kernel(I(I2L, I, I), inlined=True)
def loop_slot(loops: Int64, state: int, handle: int) -> int:
    """The row of a table of loops for a configuration (it may hold another one)."""
    return state & (_LOOPS - 1) if handle == _ANY_STACK else (state ^ (handle * 7)) & (_LOOPS - 1)


@inner_kernel(I(I2L, I, I), inlined=True)
def known_loop(loops: Int64, state: int, handle: int) -> int:
    """The row of a configuration in a table of loops, or -1."""
    slot = loop_slot(loops, state, _ANY_STACK)
    if loops[slot, _STATE] == state and loops[slot, _HANDLE] == _ANY_STACK:
        return slot
    slot = loop_slot(loops, state, handle)
    return slot if loops[slot, _STATE] == state and loops[slot, _HANDLE] == handle else I(-1)


@inner_kernel(I(MEM, I, I, I, I2L))
def find_loop(mem: Int32, state: int, handle: int, byte: int, loops: Int64) -> int:
    """Enter (state, handle) in a table of loops: as a loop (``byte`` below 0), or with the chain that ``byte`` leads
    along. Returns 1; 0 if there is no chain; or an error."""
    states, handles = allocate.longs(_CHAIN + 1), allocate.longs(_CHAIN + 1)
    states[0], handles[0] = state, handle
    low, high, links = I(-1), I(-1), 0
    rest = I(0)  # characters of the set that are known to follow the last link
    while links < _CHAIN:
        slot = known_loop(loops, states[links], handles[links]) if links > 0 else I(-1)
        if slot >= 0:
            if low & ~loops[slot, _LOW] == 0 and high & ~loops[slot, _HIGH] == 0:
                rest = loops[slot, _LENGTH]
            break
        link = find_link(mem, states[links], handles[links], byte, low)
        if link.state < 0:
            return link.state
        if link.state == L.DEAD or (links > 0 and (low & ~link.low != 0 or high & ~link.high != 0)):
            break
        if links == 0:
            low, high = link.low, link.high
        if link.state == states[links] and link.handle == handles[links]:
            rest = _ENDLESS
            break
        links += 1
        states[links], handles[links] = link.state, link.handle
    if links == 0 and rest == 0:
        return 0
    # The rows of a chain have the same set, and their lengths fall: a row that replaces another one is right for both.
    for i in range(max(1, links)):
        slot, length = loop_slot(loops, states[i], handles[i]), links - i + rest
        if length < _ENDLESS:  # a height of HIGHEST may stand for more
            length = min(length, I(HIGHEST - 1))
        loops[slot, _STATE], loops[slot, _HANDLE] = states[i], handles[i]
        loops[slot, _LOW], loops[slot, _HIGH], loops[slot, _LENGTH] = low, high, length
    return 1


@inner_kernel(I(MEM, TRIE, I2L, I, I, I, nb.boolean), inlined=True)
def stays_below(mem: Int32, trie: Trie, loops: Int64, state: int, handle: int, node: int, is_loop: bool) -> int:
    """Whether (state, handle), reached after a node, allows all tokens below it, because they stay in its loop or
    chain: 1, 0 (or it is not known), or an error. ``is_loop``: whether it is likely to be a loop."""
    slot = known_loop(loops, state, handle)
    if slot < 0 or (is_loop and loops[slot, _LENGTH] < _ENDLESS):
        size = trie.end[node] - node
        least, most = (_WORTH_FINDING, _MOST_LOOPS) if is_loop else (_WORTH_A_CHAIN, _MOST_CHAINS)
        if size <= least or loops[_LOOPS, I(is_loop)] >= most:
            return 0
        loops[_LOOPS, I(is_loop)] += 1
        byte, cls = I(-1), mem[mem[L.H_CLASS_OF] + trie.byte[node]]
        if not is_loop:
            byte = chain_byte(mem, state, handle, trie.below[node, 0], trie.below[node, 1])
            if byte < 0:
                return 0
        elif mem[mem[L.AT_DELTA] + state * mem[L.H_CLASSES] + cls] == state:
            handle = I(_ANY_STACK)
        done = find_loop(mem, state, handle, byte, loops)
        if done <= 0:
            return done
        slot = loop_slot(loops, state, handle)
    low = trie.below[node, 0]
    return I(
        low & ~loops[slot, _LOW] == 0
        and trie.below[node, 1] & ~loops[slot, _HIGH] == 0
        and (low >> HEIGHT_AT) & HIGHEST <= loops[slot, _LENGTH]
    )


class CharsetTables(NamedTuple):
    """The tables of the vocabulary for each character set."""

    sets: Int32
    """[sets, L.K_WIDTH], see `layout`."""
    rows: Int32
    """[sets * L.K_ROWS, words]: bitmasks of tokens inside a set, by their number of characters."""
    ints: Int32
    """The arrays that offsets in ``sets`` point into."""
    unfinished: Int32
    """[words]: bitmask of the tokens that end inside a character. For masks with a limit, like the fields below."""
    unfinished_low: int
    """Their trie is the nodes [unfinished_low, unfinished_high)."""
    unfinished_high: int


CHARSETS = nb.types.NamedTuple((I2, I2, I1, I1, I, I), CharsetTables)


@inner_kernel(nb.void(I1, I, I, I1), inlined=True)
def allow(tokens: Int32, first: int, behind: int, out: Int32) -> None:
    """Set the bits of tokens[first:behind] in ``out``."""
    for i in range(first, behind):
        out[tokens[i] >> 5] |= nb.int32(1) << nb.int32(tokens[i] & 31)


class Table(NamedTuple):
    """Where the arena has what a walk needs for each byte. (It does not move during a walk.)"""

    class_of: int
    delta: int
    classes: int
    states: int


TABLE = nb.types.NamedUniTuple(I, 4, Table)


@inner_kernel(TABLE(MEM), inlined=True)
def table_of(mem: Int32) -> Table:
    """The table of an arena."""
    return Table(I(mem[L.H_CLASS_OF]), I(mem[L.AT_DELTA]), I(mem[L.H_CLASSES]), I(mem[L.AT_STATE]))


# White space between the tokens of a document: after each of its characters, it may go on, or what follows it begins.
#
# If a walk took both together, each count of spaces would make a state at each place of a schema (up to 41 in an
# indentation, each with all that may follow). Separated, the states of white space are the same at all places, and
# what follows it is one state for each place.

_BLANKS = np.frombuffer(b" \t\n\r", np.uint8)
_GOES_ON, _RETURNS = 0, 1


@inner_kernel(nb.boolean(MEM, I))
def is_blank(mem: Int32, node: int) -> bool:
    """Whether a node takes nothing but characters of JSON's white space."""
    for e in range(mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]):
        for byte in range(mem[mem[L.H_EDGE_BYTES] + e] & 255, (mem[mem[L.H_EDGE_BYTES] + e] >> 8) + 1):
            if byte != _BLANKS[0] and byte != _BLANKS[1] and byte != _BLANKS[2] and byte != _BLANKS[3]:
                return False
    return I(mem[mem[L.H_KIND] + node]) == N_BYTE


@inner_kernel(I(MEM, I, I))
def part_of(mem: Int32, raw: int, which: int) -> int:
    """The raw state of the items of ``raw`` that take white space (_GOES_ON) or that wait for the symbol below
    (_RETURNS); 0 if it has other items, or no item of one of the two kinds; or an error."""
    result = triple_get(mem, L.T_PART, raw, which, 0)
    if result >= 0:
        return result
    entry = mem[L.AT_STATE] + L.S_WIDTH * raw
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    n = mem[entry + L.S_LENGTH] // 2
    if 8 * n + 64 > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    mem[L.H_BUFFER] = 0
    at, size, others = mem[L.AT_BUFFER], 0, 0
    for i in range(n):
        node = I(mem[items + 2 * i])
        kind = mem[mem[L.H_KIND] + node]
        returns = kind == N_RETURN or kind == N_END
        if returns == (which == _RETURNS):
            mem[at + 2 * size], mem[at + 2 * size + 1] = node, mem[items + 2 * i + 1]
            size += 1
        if not returns and not is_blank(mem, node):
            others += 1
    result = intern_state(mem, at, size) if others == 0 and 0 < size < n else I(0)
    return result if result < 0 else triple_put(mem, L.T_PART, raw, which, 0, result)


@inner_kernel(I(MEM, I, I))
def part(mem: Int32, raw: int, handle: int) -> int:
    """Separate white space from what follows it: the core state of the white space (its handle is in H_OUT; what
    follows it is in H_AFTER and H_AFTER_ENV). 0: the raw state is not of this kind, or what follows may begin with a
    character of white space, so that a walk could visit nodes twice. Or an error."""
    goes_on = part_of(mem, raw, _GOES_ON)
    returns = part_of(mem, raw, _RETURNS) if goes_on > 0 else goes_on
    after = local_apply(mem, returns, handle) if returns > 0 else returns
    if after <= 0:
        return after
    after_env = I(mem[L.H_OUT])
    for i in range(_BLANKS.shape[0]):
        cls = I(mem[mem[L.H_CLASS_OF] + _BLANKS[i]])
        blank = I(mem[mem[L.AT_DELTA] + after * mem[L.H_CLASSES] + cls])
        if blank == L.UNKNOWN:
            blank = step(mem, after, cls)
        if blank != L.DEAD:
            return min(blank, 0)
    mem[L.H_AFTER], mem[L.H_AFTER_ENV] = after, after_env
    return local_apply(mem, goes_on, handle)


@inner_kernel(nb.types.UniTuple(I, 3)(MEM, TABLE, I2L, I, I, I, nb.boolean), inlined=True)
def advance(
    mem: Int32, table: Table, known: Int64, state: int, handle: int, byte: int, may_part: bool
) -> tuple[int, int, int]:
    """(core state, handle, -1) after one byte. The state is L.DEAD, or an error.

    known [a power of two, 6]: results of `local_apply` in this walk: raw state, handle; core state, handle. In a loop
    that may return to its caller (such as an identifier), every byte pops and pushes, with the same result.
    ``may_part``: whether to separate white space from what follows it (`part`). Where this is done, the result is the
    white space, and known[third result, 4:6] is the core state and handle of what follows.
    """
    cls = mem[table.class_of + byte]
    raw = I(mem[table.delta + state * table.classes + cls])
    if raw < 0:
        raw = step(mem, state, cls)
    if raw <= 0 or mem[table.states + L.S_WIDTH * raw + L.S_FLAGS] & L.COMPLEX == 0:
        return raw, handle, I(-1)
    slot = (raw ^ 5 * handle) & (known.shape[0] - 1)
    if known[slot, 0] != raw or known[slot, 1] != handle:
        core = part(mem, raw, handle) if may_part else I(0)
        after = I(mem[L.H_AFTER]) if core > 0 else I(0)
        if core == 0:
            core = local_apply(mem, raw, handle)
        if core < 0:
            return core, handle, I(-1)
        known[slot, 0], known[slot, 1], known[slot, 2], known[slot, 3] = raw, handle, core, mem[L.H_OUT]
        known[slot, 4], known[slot, 5] = after, mem[L.H_AFTER_ENV]
    return known[slot, 2], known[slot, 3], slot if known[slot, 4] > 0 else I(-1)


@inner_kernel(I(MEM, TRIE, I, I, I, I, I1))
def walk(
    mem: Int32,
    trie: Trie,
    low: int,
    high: int,
    state: int,
    handle: int,
    out: Int32,
) -> int:
    """Set in ``out`` the bits of all tokens of the trie nodes [low, high) that (state, handle) allows (and after which
    the remaining tokens suffice, if there is a limit). 0, or an error.

    The configuration after each node is that after its parent, which is remembered by depth, and the node's byte. If it
    is dead, the subtree is skipped. If all its bytes stay in a loop or chain, it is skipped, too, with all its tokens
    allowed.
    After white space, and without a limit, there are two configurations (`part`): the subtree is walked with what
    follows, then with more white space. No byte is in both, so no subtree is entered twice.
    """
    table = table_of(mem)
    t_byte, t_depth, t_end, t_token_start, t_tokens, _, _ = trie
    at_state, at_env = mem[L.H_WALK_STATE], mem[L.H_WALK_ENV]
    mem[at_state], mem[at_env] = state, handle
    is_long, is_limited = high - low > _LONG_WALK, mem[L.H_LEFT] > 0
    known = np.full((64 if is_long else 16, 6), -1, np.int64)
    asked_state, asked_env, fitting = I(-1), I(-1), I(1)
    takes_all = is_long and high == trie.main_end and not is_limited
    loops = new_loops(takes_all)
    later, waiting = at_env + mem[L.H_DEPTH], 0  # nodes whose white space is walked later: L.WAITING ints each
    i = low
    while i < high or waiting > 0:
        if i >= high:
            waiting -= 1
            at = later + L.WAITING * waiting
            i, high = I(mem[at]), I(mem[at + 1])
            mem[at_state + t_depth[i]], mem[at_env + t_depth[i]] = mem[at + 2], mem[at + 3]
            i += 1
            continue
        depth = t_depth[i]
        before, before_env = I(mem[at_state + depth - 1]), I(mem[at_env + depth - 1])
        after, env, parted = advance(mem, table, known, before, before_env, I(t_byte[i]), not is_limited)
        if after < 0:
            return after
        if after == L.DEAD:
            i = t_end[i]
            continue
        if parted >= 0 and t_end[i] > i + 1:  # first with what follows the white space
            at = later + L.WAITING * waiting
            mem[at], mem[at + 1], mem[at + 2], mem[at + 3] = i, high, after, env
            waiting += 1
            after, env, high = known[parted, 4], known[parted, 5], I(t_end[i])
        if takes_all and t_end[i] - i > LEAST_BELOW:
            is_loop = after == before and env == before_env  # (as an argument, this would count references to the trie)
            stays = stays_below(mem, trie, loops, after, env, i, is_loop)
            if stays < 0:
                return stays
            if stays != 0:
                allow(t_tokens, I(t_token_start[i]), I(t_token_start[t_end[i]]), out)
                i = t_end[i]
                continue
        mem[at_state + depth], mem[at_env + depth] = after, env
        first, behind = I(t_token_start[i]), I(t_token_start[i + 1])
        if is_limited and first < behind and (after != asked_state or env != asked_env):
            asked_state, asked_env, fitting = after, env, fits(mem, trie, after, env)
            if fitting < 0:
                return fitting
        if fitting != 0:
            allow(t_tokens, first, behind, out)
        i += 1
    return 0


@inner_kernel(I(MEM, I, I, I1))
def take_character(mem: Int32, state: int, handle: int, table_row: Int32) -> int:
    """(state, handle) after one character of a set: the core state (handle in H_OUT), 0 if dead, or an error."""
    n = table_row[L.K_REP_END]
    for i in range(n):
        cls = mem[mem[L.H_CLASS_OF] + table_row[L.K_REP_BYTES + i]]
        raw = I(mem[mem[L.AT_DELTA] + state * mem[L.H_CLASSES] + cls])
        if raw < 0:
            raw = step(mem, state, cls)
        if raw <= 0:
            return raw
        state = local_apply(mem, raw, handle)
        if state <= 0:
            return state
        handle = I(mem[L.H_OUT])
    mem[L.H_OUT] = handle
    return state


@inner_kernel(I(MEM, I, I, I1))
def inspect_set(mem: Int32, state: int, number: int, table_row: Int32) -> int:
    """Which items take characters of set ``number`` next. 2: only items that loop over it; 1: others (too); 0: none."""
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    loops = False
    overlap = False
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node = mem[items + 2 * i]
        if mem[mem[L.H_CHARSET] + node] == number:
            loops = True
        elif mem[mem[L.H_KIND] + node] == N_BYTE:
            for e in range(mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]):
                packed = mem[mem[L.H_EDGE_BYTES] + e]
                for byte in range(packed & 255, (packed >> 8) + 1):
                    if (table_row[L.K_FIRST_BYTES + (byte >> 5)] >> (byte & 31)) & 1:
                        overlap = True
                        break
    if overlap:
        return 1
    return 2 if loops else 0
