"""The arena as memory: allocated with its regions one behind the other, and grown region by region.

A region that is full moves to the free end of the array, twice as large; what it leaves behind is lost until the next
copy. Only when the end is reached is the whole arena copied, into an array with as much free space as it then holds. So
all growing together costs about one copy, whatever is large in it (the constant part of a schema with counted patterns
can be 90 MB). Free space is memory the operating system has not given yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from types import MappingProxyType

import numba as nb
import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import rehash_lists, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.errors import BudgetExceededError, EngineFault
from dotllm.jit import kernel
from dotllm.system.lazy_memory import reserved

_LEAST = 64  # units: what a region that is empty begins with
_GROW_FAST = 1 << 18  # ints: below this a region grows fourfold
_LARGE = 1 << 20  # ints: from here on free space costs nothing until it is used
_WHOLE = (L.LISTS, L.TRIPLES, L.BUFFER, L.LOCAL)  # regions whose contents are not their first entries


def too_long() -> BudgetExceededError:
    """The refusal of a limit on tokens."""
    message = "the shortest text is too long for a limit on tokens to be kept"
    return BudgetExceededError(message, keyword="length", help="ask without one (on a server: dotllm_finish)")


def too_large(limit: int) -> BudgetExceededError:
    """The refusal of an arena with more than ``limit`` ints."""
    return BudgetExceededError(
        f"the automaton needs more than {limit * 4 >> 20} MiB",
        keyword="memory",
        help="lower the counts of patterns and lengths, name fewer values or properties, or ask without a limit on "
        "tokens",
    )


@kernel(nb.void(MEM, nb.int32[:, ::1]))
def fill_triples(mem: Int32, triples: Int32) -> None:
    """Fill the hash table (zeroed) again. triples [n, 5]: (kind + 1, a, b, c, value); kind + 1 = 0: no entry."""
    mem[L.USED_TRIPLES] = 0
    for i in range(triples.shape[0]):
        if triples[i, 0] != 0:
            triple_put(mem, triples[i, 0] - 1, triples[i, 1], triples[i, 2], triples[i, 3], triples[i, 4])


def used(mem: Int32) -> int:
    """Ints that are taken, what moved regions have left behind included."""
    return int(mem[L.H_END])


def contents(mem: Int32, region: int) -> Int32:
    """A view of the part of a region that means something (of a table: all of it)."""
    start, capacity, count = (int(x) for x in mem[L.R + 3 * region : L.R + 3 * region + 3])
    if region in _WHOLE:
        count = capacity
    elif region == L.DELTA:
        count = int(mem[L.USED_STATE]) * int(mem[L.H_CLASSES])
    return mem[start : start + count * L.WIDTH[region]]


def cleared(size: int, free: int = 0) -> Int32:
    """Memory for an arena of ``size`` ints with at least ``free`` behind them, all zero."""
    if size < _LARGE:
        return np.zeros(size + free, np.int32)
    return reserved(size + max(free, size), np.int32)


def allocate(slots: Int32, constant: Int32, capacity: list[int], free: int = 0) -> Int32:
    """An arena with the given header, NFA part and capacities; its regions are zero, their used counts as in ``slots``.

    ``free``: ints of free space behind them.
    """
    first = L.HEADER + len(constant)
    *positions, size = accumulate(map(mul, capacity, L.WIDTH), initial=first)
    mem = cleared(size, free)
    mem[: L.HEADER] = slots
    mem[L.HEADER : first] = constant
    regions = mem[L.R : L.R + 3 * L.REGIONS].reshape(L.REGIONS, 3)
    regions[:, 0], regions[:, 1] = positions, capacity
    mem[L.H_FIRST], mem[L.H_END] = first, size
    return mem


def constant_part(mem: Int32) -> Int32:
    """A view of the NFA's arrays."""
    return mem[L.HEADER : mem[L.H_FIRST]]


def grow(mem: Int32, region: int) -> Int32:
    """Make ``region`` larger, in the arena or in a copy of it, and return that arena.

    Raises:
        BudgetExceededError: the arena would be larger than its limit.
    """
    capacity = {region: max(_LEAST, int(mem[L.R + 3 * region + 1]))}
    capacity[region] *= 4 if capacity[region] * L.WIDTH[region] < _GROW_FAST else 2
    if region == L.STATE:
        capacity[L.DELTA] = max(int(mem[L.CAP_DELTA]), capacity[L.STATE] * int(mem[L.H_CLASSES]))
    needed = sum(count * L.WIDTH[r] for r, count in capacity.items())
    limit = int(mem[L.H_LIMIT])
    if used(mem) + needed > min(len(mem), limit):
        if _copied_size(mem) + needed > limit:
            return _with_larger(mem, capacity)
        mem = _copy(mem, needed + _copied_size(mem))
    for r, count in capacity.items():
        _move(mem, r, count)
    return mem


def _copied_size(mem: Int32) -> int:
    """Ints of the arena without what moved regions have left behind."""
    return int(mem[L.H_FIRST]) + sum(int(mem[L.R + 3 * r + 1]) * L.WIDTH[r] for r in range(L.REGIONS))


def _copy(mem: Int32, free: int, grown: Mapping[int, int] = MappingProxyType({})) -> Int32:
    """The arena without what moved regions have left behind, with ``free`` ints behind it, and with regions of the
    capacities ``grown`` in the place of their smaller ones."""
    capacity = [grown.get(r, int(mem[L.R + 3 * r + 1])) for r in range(L.REGIONS)]
    new = allocate(mem[: L.HEADER], constant_part(mem), capacity, free)
    for r in sorted(range(L.REGIONS), key=grown.__contains__):  # (tables are filled from the others)
        part, start = contents(mem, r), int(new[L.R + 3 * r])
        if r in grown:
            _fill(new, r, part)
        else:
            new[start : start + len(part)] = part
    return new


def _with_larger(mem: Int32, grown: Mapping[int, int]) -> Int32:
    """`_copy` without free space: at its limit an arena has no room for a region beside its smaller one.

    Raises:
        BudgetExceededError: it would be larger than its limit.
    """  # noqa: DOC501 - a function makes the error
    added = sum((count - int(mem[L.R + 3 * r + 1])) * L.WIDTH[r] for r, count in grown.items())
    limit = int(mem[L.H_LIMIT])
    if _copied_size(mem) + added > limit:
        raise too_large(limit)
    return _copy(mem, 0, grown)


def _move(mem: Int32, region: int, capacity: int) -> None:
    """Move a region to the end of what is taken."""
    part = contents(mem, region)
    start = int(mem[L.H_END])
    mem[L.R + 3 * region], mem[L.R + 3 * region + 1] = start, capacity
    mem[L.H_END] = start + capacity * L.WIDTH[region]
    _fill(mem, region, part)


def _fill(mem: Int32, region: int, part: Int32) -> None:
    """Put contents into a larger region. Tables, whose places depend on their size, are filled anew."""
    start = int(mem[L.R + 3 * region])
    if region == L.LISTS:
        rehash_lists(mem)
    elif region == L.TRIPLES:
        fill_triples(mem, part.reshape(-1, L.WIDTH[L.TRIPLES]))
    else:
        mem[start : start + len(part)] = part


def recover(mem: Int32, code: int) -> Int32:
    """React to an error code of a kernel: the grown arena to call it again with, or an exception.

    Raises:
        BudgetExceededError: the arena is at its limit, or the fuel is gone.
        EngineFault: any other code.
    """  # noqa: DOC501 - a function makes the error
    if code <= L.FULL:
        return grow(mem, L.FULL - code)
    if code == L.TOO_FAR:
        raise too_long()
    if code == L.TOO_DEEP:
        message = f"a token may end more than {L.BASE_CELLS - 1} open rules at once"
        raise BudgetExceededError(message, keyword="nesting", code="too_deep")
    if code == L.OUT_OF_FUEL:
        message = "one step of the automaton needs too much work"
        raise BudgetExceededError(message, keyword="steps", help="give fewer alternatives that begin alike")
    raise EngineFault(f"internal fault {code} of the automaton; please report the specification")
