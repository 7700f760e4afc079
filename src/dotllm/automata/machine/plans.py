"""Kernels: find the fewest tokens that bring a configuration to the end of its text.

A *plan* is the way (see `ways`) from an item to the end of its level, then from each frame on its stack to the end
of that frame's level: one text for an item and a choice of frames. A configuration needs the smallest number of tokens
into which the text of one of its plans can be cut, plus the end token. Tokens count, not bytes, so a plan's text is cut
as a whole: tokens may reach across the ends of levels.

So a configuration that needs n tokens has a token that leads to a configuration that needs at most n - 1: the first
token of its plan leads to items and frames that include those of the rest of the plan, and from there on the ways are
the same. So a limit that is kept once is kept to the end.

No plan is longer than a text that a model can write: a longer text counts as one that no tokens spell.

A *place* is a point of a plan: (node, tail), where the tail (see `tail_of`) is the frames below. Facts about a place
hold for every plan that reaches it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb

from dotllm.arrays import Int32, Int64, UInt8
from dotllm.automata.kinds import N_ACCEPT, N_BYTE, N_CALL, N_END, N_ENTER, N_RETURN, N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import has_required, is_used, used_after
from dotllm.automata.machine.intern import buffer_room, sort_ints, triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.run import push_cell
from dotllm.automata.machine.ways import MOST
from dotllm.jit import I1, U1, I, inner_kernel, kernel

# Kernels: the frames below a place of a plan (see the module docstring), as numbers.
#
# A tail is a list of cells (label, count, tail below), with several cells if several derivations lead to the same node.
# Equal tails have equal numbers, however they are cut into symbols on a stack. Counters that require no further round
# count as equal.


@inner_kernel(I(MEM, I, I, I, I))
def unit(mem: Int32, kind: int, a: int, b: int, c: int) -> int:
    """The number of a cell (label, count, tail below) or of a tail (cell, rest of the tail, 0); or an error."""
    result = triple_get(mem, kind, a, b, c)
    if result >= 0:
        return result
    number = I(mem[L.USED_TAILS])
    if number >= mem[L.CAP_TAILS]:
        return L.FULL - L.TAILS
    done = triple_put(mem, kind, a, b, c, number)
    if done < 0:
        return done
    at = mem[L.AT_TAILS] + 3 * number
    mem[at], mem[at + 1], mem[at + 2] = a, b, c
    mem[L.USED_TAILS] = number + 1
    return number


@inner_kernel(I(MEM, I, I, I))
def pushed(mem: Int32, label: int, count: int, tail: int) -> int:
    """The tail of one frame on another tail; or an error."""
    cell = unit(mem, L.T_CELL, label, count, tail)
    return cell if cell < 0 else unit(mem, L.T_TAIL, cell, 0, 0)


@inner_kernel(I(MEM, I, I), inlined=True)
def plain_count(mem: Int32, label: int, count: int) -> int:
    """The count of a frame as it is in cells: all counts that require no further round are the same."""
    if label > L.LOOP:
        return 0
    loop = L.LOOP - label
    low, high = I(mem[mem[L.H_LOOP_MIN] + loop]), I(mem[mem[L.H_LOOP_MAX] + loop])
    if low < 0:
        return 0
    if high < -1:
        return count
    last = max(low - 1, 0)
    return last if count < 0 else min(count, last)


@inner_kernel(I(MEM, I, I))
def tail_of(mem: Int32, fs: int, stack: int) -> int:
    """The tail of a frame set whose holes stand for the frame sets of the stack cell ``stack``; or an error."""
    result = triple_get(mem, L.T_BELOW, fs, stack, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    bottom = mem[L.H_BUFFER]
    at = buffer_room(mem, 2)
    if at < 0:
        return at
    mem[at], mem[at + 1] = fs, stack
    mem[L.H_BUFFER] += 2
    while mem[L.H_BUFFER] > bottom:
        top = mem[L.AT_BUFFER] + mem[L.H_BUFFER] - 2
        top_set, cell_at = I(mem[top]), I(mem[top + 1])
        if triple_get(mem, L.T_BELOW, top_set, cell_at, 0) >= 0:
            mem[L.H_BUFFER] -= 2
            continue
        first, n = pool + mem[sets + 2 * top_set], mem[sets + 2 * top_set + 1]
        mem[L.H_FUEL] -= 1 + n
        if mem[L.H_FUEL] < 0:
            return L.OUT_OF_FUEL
        cell = mem[L.AT_STACK] + 3 * cell_at
        is_missing = False
        length = 0
        for i in range(n):
            entry = frames + 3 * mem[first + i]
            label = mem[entry]
            if label == L.ROOT:
                length += 1
                continue
            other, below = I(mem[entry + 2]), cell_at  # (a plan skips an optional frame, see `exits`)
            if label == L.HOLE:
                if cell_at == 0:
                    return L.FAULT
                other = I(mem[mem[L.AT_POOL] + mem[mem[L.AT_SYMBOL] + 3 * mem[cell]] + mem[entry + 1]])
                below = I(mem[cell + 1])
            tail = triple_get(mem, L.T_BELOW, other, below, 0)
            if tail < 0:
                at = buffer_room(mem, 2)
                if at < 0:
                    return at
                mem[at], mem[at + 1] = other, below
                mem[L.H_BUFFER] += 2
                is_missing = True
            elif label == L.HOLE or label >= mem[L.H_NODES]:
                while tail > 0:
                    length += 1
                    tail = I(mem[mem[L.AT_TAILS] + 3 * tail + 1])
            else:
                length += 1
        if is_missing:
            continue
        cells = buffer_room(mem, length)
        if cells < 0:
            return cells
        length = 0
        for i in range(n):
            entry = frames + 3 * mem[first + i]
            label = I(mem[entry])
            if label == L.HOLE or label >= mem[L.H_NODES]:
                tail = triple_get(mem, L.T_BELOW, mem[entry + 2], cell_at, 0)
                if label == L.HOLE:
                    other = I(mem[mem[L.AT_POOL] + mem[mem[L.AT_SYMBOL] + 3 * mem[cell]] + mem[entry + 1]])
                    tail = triple_get(mem, L.T_BELOW, other, I(mem[cell + 1]), 0)
                while tail > 0:
                    mem[cells + length] = mem[mem[L.AT_TAILS] + 3 * tail]
                    length += 1
                    tail = I(mem[mem[L.AT_TAILS] + 3 * tail + 1])
                continue
            below = I(0) if label == L.ROOT else triple_get(mem, L.T_BELOW, mem[entry + 2], cell_at, 0)
            new = unit(mem, L.T_CELL, label, plain_count(mem, label, I(mem[entry + 1])), below)
            if new < 0:
                return new
            mem[cells + length] = new
            length += 1
        sort_ints(mem, cells, length)
        tail = I(0)
        for i in range(length - 1, -1, -1):
            if i + 1 < length and mem[cells + i] == mem[cells + i + 1]:
                continue
            tail = unit(mem, L.T_TAIL, mem[cells + i], tail, 0)
            if tail < 0:
                return tail
        done = triple_put(mem, L.T_BELOW, top_set, cell_at, 0, tail)
        if done < 0:
            return done
        mem[L.H_BUFFER] -= 2
    return triple_get(mem, L.T_BELOW, fs, stack, 0)


# The token trie in the form that kernels take: arrays of the store of tries, and the range of the trie of all
# tokens.


class Trie(NamedTuple):
    """The store of tries (see `vocabulary.trie`): its nodes in depth-first order."""

    byte: UInt8
    """[nodes]: the last byte on the way to each."""
    depth: Int32
    """[nodes]: the number of bytes on the way to each, from 1 on."""
    end: Int32
    """[nodes]: where the subtree of each ends."""
    token_start: Int32
    """[nodes + 1]: where the tokens of each begin in ``tokens``."""
    tokens: Int32
    main_end: int
    """The trie of all tokens is the nodes [0, main_end)."""
    below: Int64
    """[main_end, 2]: the set of bytes below each, and its height (see `subtrees`)."""


TRIE = nb.types.NamedTuple((U1, I1, I1, I1, I1, I, nb.int64[:, ::1]), Trie)


# columns of PLACES
P_NODE, P_TAIL, P_NEXT, P_TOKENS, P_BYTES = range(5)
P_WIDTH = 5
THE_END = 0  # the place after a text
NOT_LOOKED_AT = -1  # P_NEXT: the places that follow have not been found
NEVER = 1 << 29  # tokens of a plan that no tokens spell, or that is too long
FARTHEST = 1 << 19  # bytes of a level, or of the rounds that a loop still requires; a plan with more has MOST bytes
_CELL = L.WIDTH[L.LOCAL]


@inner_kernel(I(MEM, I, I))
def place_of(mem: Int32, node: int, tail: int) -> int:
    """The number of a place, or an error."""
    result = triple_get(mem, L.T_PLACE, node, tail, 0)
    if result >= 0:
        return result
    number = I(mem[L.USED_PLACES])
    if number >= mem[L.CAP_PLACES]:
        return L.FULL - L.PLACES
    done = triple_put(mem, L.T_PLACE, node, tail, 0, number)
    if done < 0:
        return done
    at = mem[L.AT_PLACES] + P_WIDTH * number
    mem[at + P_NODE], mem[at + P_TAIL], mem[at + P_NEXT] = node, tail, NOT_LOOKED_AT
    mem[at + P_TOKENS] = mem[at + P_BYTES] = 0
    mem[L.USED_PLACES] = number + 1
    return number


@inner_kernel(I(MEM, I, I))
def linked(mem: Int32, place: int, links: int) -> int:
    """The list ``links`` of places with ``place`` in front; or an error."""
    if place < 0:
        return place
    number = I(mem[L.USED_TAILS])
    if number >= mem[L.CAP_TAILS]:
        return L.FULL - L.TAILS
    at = mem[L.AT_TAILS] + 3 * number
    mem[at], mem[at + 1], mem[at + 2] = place, links, 0
    mem[L.USED_TAILS] = number + 1
    return number


@inner_kernel(I(MEM, I, I, I))
def go_later(mem: Int32, target: int, begins: int, tail: int) -> int:
    """Record in the buffer that a plan continues at ``target``. 0, or an error."""
    if tail < 0:
        return tail
    at = buffer_room(mem, 3)
    if at < 0:
        return at
    mem[at], mem[at + 1], mem[at + 2] = target, begins, tail
    mem[L.H_BUFFER] += 3
    return 0


@inner_kernel(I(MEM, I, I, I, I))
def go_to_part(mem: Int32, loop: int, first: int, used: int, tail: int) -> int:
    """Continue the plan at the next part of an unordered sequence: the first required one, otherwise the one with the
    fewest bytes. 0, or an error."""
    low, parts = I(mem[mem[L.H_LOOP_MIN] + loop]), -2 - I(mem[mem[L.H_LOOP_MAX] + loop])
    required, once = low & 0x7FFF, low >> 15
    best, least = I(-1), I(MOST)
    mem[L.H_FUEL] -= parts
    for part in range(parts):
        begin = mem[mem[L.H_WAY_BEGIN] + first + part]
        if begin < 0 or (part < once and is_used(mem, used, part)):
            continue
        if part < required:
            best = part
            break
        cost = I(mem[mem[L.H_WAY_COST] + begin])
        if cost < least:
            best, least = part, cost
    if best < 0:
        return L.FAULT
    return go_later(mem, first + best, 1, pushed(mem, L.LOOP - loop, used, tail))


@inner_kernel(I(MEM, I, I), inlined=True)
def end_round(mem: Int32, node: int, cell: int) -> int:
    """Continue the plan after END, popping the frame stored at ``cell``. 0, or an error."""
    loop, to = I(mem[mem[L.H_A] + node]), I(mem[mem[L.H_B] + node])
    label, count, below = I(mem[cell]), I(mem[cell + 1]), I(mem[cell + 2])
    if label != L.LOOP - loop:
        return L.FAULT
    low, high = I(mem[mem[L.H_LOOP_MIN] + loop]), I(mem[mem[L.H_LOOP_MAX] + loop])
    after, body = I(mem[mem[L.H_LOOP_AFTER] + loop]), I(mem[mem[L.H_LOOP_BODY] + loop])
    if low < 0:
        if to < 0:
            return go_later(mem, after, 0, below)
        way = I(mem[mem[L.H_WAY_CHOICE] + node])
        return go_later(mem, way, 1, pushed(mem, label, 0, below))
    if high < -1:
        if to > 0:
            return go_to_part(mem, loop, to, count, below)
        count = used_after(mem, node, -to, count)
        if count < 0:
            return count
        if has_required(mem, loop, count):
            return go_later(mem, after, 0, below)
        return go_later(mem, body, 0, pushed(mem, label, count, below))
    if count + 1 >= low:
        return go_later(mem, after, 0, below)
    way = I(mem[mem[L.H_WAY_BEGIN] + body])
    if way >= 0 and (low - count - 1) * I(mem[mem[L.H_WAY_COST] + way]) > FARTHEST:
        return 0
    return go_later(mem, body, 1, pushed(mem, label, count + 1, below))


@inner_kernel(I(MEM, I, I), inlined=True)
def enter(mem: Int32, node: int, tail: int) -> int:
    """Continue the plan in the loop of an ENTER node. 0, or an error."""
    loop, first = I(mem[mem[L.H_A] + node]), I(mem[mem[L.H_B] + node])
    low, high = I(mem[mem[L.H_LOOP_MIN] + loop]), I(mem[mem[L.H_LOOP_MAX] + loop])
    if low < 0:
        way = I(mem[mem[L.H_WAY_CHOICE] + node])
        return go_later(mem, way, 1, pushed(mem, L.LOOP - loop, 0, tail))
    if high < -1:
        return go_to_part(mem, loop, first, 0, tail)
    return go_later(mem, mem[mem[L.H_LOOP_BODY] + loop], 1, pushed(mem, L.LOOP - loop, 0, tail))


@inner_kernel(I(MEM, I, I))
def places_from(mem: Int32, target: int, tail: int) -> int:
    """The list of places at which plans continue after reaching ``target`` with ``tail`` below; or an error."""
    bottom = mem[L.H_BUFFER]
    links = I(0)
    done = go_later(mem, target, 0, tail)
    while done >= 0 and mem[L.H_BUFFER] > bottom:
        mem[L.H_FUEL] -= 1
        if mem[L.H_FUEL] < 0:
            return L.OUT_OF_FUEL
        mem[L.H_BUFFER] -= 3
        top = mem[L.AT_BUFFER] + mem[L.H_BUFFER]
        begins, tail = I(mem[top + 1]), I(mem[top + 2])
        node = I(mem[mem[L.H_WAY_BEGIN if begins != 0 else L.H_WAY_AFTER] + mem[top]])
        if node < 0:
            return L.FAULT
        kind = mem[mem[L.H_KIND] + node]
        if kind == N_BYTE or kind == N_TOKENS:
            links = done = linked(mem, place_of(mem, node, tail), links)
        elif kind == N_ACCEPT:
            links = done = linked(mem, THE_END, links)
        elif kind == N_CALL:
            done = go_later(mem, mem[mem[L.H_A] + node], 1, pushed(mem, mem[mem[L.H_B] + node], 0, tail))
        elif kind == N_ENTER:
            done = enter(mem, node, tail)
        elif kind == N_RETURN or kind == N_END:
            while done >= 0 and tail > 0:
                entry = mem[L.AT_TAILS] + 3 * tail
                cell = mem[L.AT_TAILS] + 3 * mem[entry]
                if kind == N_END:
                    done = end_round(mem, node, cell)
                elif mem[cell] >= 0:
                    done = go_later(mem, mem[cell], 0, mem[cell + 2])
                elif mem[cell] == L.ROOT:
                    links = done = linked(mem, THE_END, links)
                else:
                    return L.FAULT
                tail = I(mem[entry + 1])
        else:
            return L.FAULT
    return done if done < 0 else links


@inner_kernel(I(MEM, TRIE, I))
def cut(mem: Int32, trie: Trie, place: int) -> int:
    """The fewest tokens from ``place`` on, whose node is a BYTE; or an error. All later places must be known."""
    places, byte_at = mem[L.AT_PLACES], mem[L.H_WAY_BYTE]
    bottom = mem[L.H_BUFFER]
    done = go_later(mem, place, 0, trie.main_end)
    best = I(NEVER)
    while mem[L.H_BUFFER] > bottom:
        if done < 0:
            return done
        mem[L.H_BUFFER] -= 3
        top = mem[L.AT_BUFFER] + mem[L.H_BUFFER]
        at, i, end = places + P_WIDTH * mem[top], I(mem[top + 1]), I(mem[top + 2])
        byte = mem[byte_at + mem[at + P_NODE]]
        while i < end and trie.byte[i] != byte:
            i = I(trie.end[i])
        if i >= end:
            continue
        is_token = trie.token_start[i] < trie.token_start[i + 1]
        goes_on = trie.end[i] > i + 1
        links = I(mem[at + P_NEXT])
        while links > 0:
            behind = I(mem[mem[L.AT_TAILS] + 3 * links])
            other = places + P_WIDTH * behind
            if is_token:
                best = min(best, I(mem[other + P_TOKENS]) + 1)
            if goes_on and behind != THE_END and mem[mem[L.H_KIND] + mem[other + P_NODE]] == N_BYTE:
                done = go_later(mem, behind, i + 1, I(trie.end[i]))
                if done < 0:
                    return done
            links = I(mem[mem[L.AT_TAILS] + 3 * links + 1])
    return best


@inner_kernel(I(MEM, TRIE, I))
def solve(mem: Int32, trie: Trie, place: int) -> int:
    """Find P_TOKENS and P_BYTES of a place. Returns P_TOKENS, or an error."""
    places = mem[L.AT_PLACES]
    mem[places + P_TOKENS] = 1  # the end token
    if mem[places + P_WIDTH * place + P_TOKENS] != 0:
        return I(mem[places + P_WIDTH * place + P_TOKENS])
    bottom = mem[L.H_BUFFER]
    at = buffer_room(mem, 1)
    if at < 0:
        return at
    mem[at] = place
    mem[L.H_BUFFER] += 1
    while mem[L.H_BUFFER] > bottom:
        last = I(mem[mem[L.AT_BUFFER] + mem[L.H_BUFFER] - 1])
        entry = places + P_WIDTH * last
        if mem[entry + P_TOKENS] != 0:
            mem[L.H_BUFFER] -= 1
            continue
        mem[L.H_FUEL] -= 1
        if mem[L.H_FUEL] < 0:
            return L.TOO_FAR
        node = mem[entry + P_NODE]
        is_byte = mem[mem[L.H_KIND] + node] == N_BYTE
        if mem[entry + P_NEXT] == NOT_LOOKED_AT:
            target = mem[mem[L.H_B] + node]
            if is_byte:
                choice = mem[mem[L.H_WAY_CHOICE] + node]
                if choice < 0:
                    return L.FAULT
                target = mem[mem[L.H_EDGE_TARGET] + choice]
            links = I(0)
            if mem[mem[L.H_WAY_COST] + node] <= FARTHEST:
                links = places_from(mem, target, mem[entry + P_TAIL])
            if links < 0:
                return links
            mem[entry + P_NEXT] = links
        is_missing = False
        tokens, fewest = I(NEVER), I(MOST)
        links = I(mem[entry + P_NEXT])
        while links > 0:
            behind = I(mem[mem[L.AT_TAILS] + 3 * links])
            other = places + P_WIDTH * behind
            if mem[other + P_TOKENS] == 0:
                at = buffer_room(mem, 1)
                if at < 0:
                    return at
                mem[at] = behind
                mem[L.H_BUFFER] += 1
                is_missing = True
            tokens = min(tokens, I(mem[other + P_TOKENS]))
            fewest = min(fewest, I(mem[other + P_BYTES]))
            links = I(mem[mem[L.AT_TAILS] + 3 * links + 1])
        if is_missing:
            continue
        if is_byte:
            tokens = cut(mem, trie, last)
            if tokens < 0:
                return tokens
        else:
            tokens = tokens + 1
        mem[entry + P_BYTES] = min(fewest + 1, MOST)
        mem[entry + P_TOKENS] = min(tokens, NEVER)
        mem[L.H_BUFFER] -= 1
    return I(mem[places + P_WIDTH * place + P_TOKENS])


@inner_kernel(I(MEM, TRIE, I, I))
def tokens_of(mem: Int32, trie: Trie, state: int, stack: int) -> int:
    """The fewest tokens of a plan of (state, stack), including the end token; NEVER if no tokens spell one; or an
    error."""
    result = triple_get(mem, L.T_FINISH, state, stack, 0)
    if result >= 0:
        return result
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    fewest, least = I(NEVER), I(MOST)
    mem[L.H_BUFFER] = 0
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node, fs = I(mem[items + 2 * i]), I(mem[items + 2 * i + 1])
        if mem[mem[L.H_KIND] + node] == N_ACCEPT:
            fewest, least = 1, 0
            break
        tail = tail_of(mem, fs, stack)
        place = place_of(mem, node, tail) if tail >= 0 else tail
        tokens = solve(mem, trie, place) if place >= 0 else place
        if tokens < 0:
            return tokens
        fewest = min(fewest, tokens)
        least = min(least, I(mem[mem[L.AT_PLACES] + P_WIDTH * place + P_BYTES]))
    done = triple_put(mem, L.T_FINISH, state, stack, 1, least)
    return done if done < 0 else triple_put(mem, L.T_FINISH, state, stack, 0, fewest)


@inner_kernel(I(MEM, TRIE, I, I))
def bytes_of(mem: Int32, trie: Trie, state: int, stack: int) -> int:
    """The fewest bytes of a plan of (state, stack), or an error."""
    done = tokens_of(mem, trie, state, stack)
    return done if done < 0 else triple_get(mem, L.T_FINISH, state, stack, 1)


@inner_kernel(I(MEM, I))
def real_stack(mem: Int32, handle: int) -> int:
    """The stack cell that equals a walk's stack (see `walk`), whose symbols are real ones; or an error."""
    cells = mem[L.AT_LOCAL]
    mem[L.H_BUFFER] = 0
    while mem[cells + _CELL * handle + 3] == 0 and mem[cells + _CELL * handle + 2] == 0:
        at = buffer_room(mem, 1)
        if at < 0:
            return at
        mem[at] = handle
        mem[L.H_BUFFER] += 1
        handle = I(mem[cells + _CELL * handle + 1])
    stack = I(mem[cells + _CELL * handle + 2])
    while mem[L.H_BUFFER] > 0:
        mem[L.H_BUFFER] -= 1
        cell = cells + _CELL * mem[mem[L.AT_BUFFER] + mem[L.H_BUFFER]]
        stack = push_cell(mem, mem[cell], stack)
        if stack < 0:
            return stack
        mem[cell + 2] = stack
    return stack


@inner_kernel(I(MEM, TRIE, I, I))
def fits(mem: Int32, trie: Trie, state: int, handle: int) -> int:
    """Whether a token that leads to (state, handle), in a walk with a limit, leaves enough tokens: 1, 0, or an
    error."""
    stack = real_stack(mem, handle)
    tokens = tokens_of(mem, trie, state, stack) if stack >= 0 else stack
    if tokens < 0:
        return tokens
    mem[L.H_MOST] = max(mem[L.H_MOST], tokens)
    mem[L.H_MOST_BYTES] = max(mem[L.H_MOST_BYTES], triple_get(mem, L.T_FINISH, state, stack, 1))
    return I(tokens < mem[L.H_LEFT])


@kernel(I(MEM, TRIE, I))
def bytes_from(mem: Int32, trie: Trie, config: int) -> int:
    """`bytes_of` a configuration; or an error. Ways must have been found."""
    if config == L.FINISHED:
        return 0
    at = mem[L.AT_CONFIG] + 3 * config
    return bytes_of(mem, trie, mem[at], mem[at + 1])


@kernel(I(MEM, TRIE, I))
def tokens_from(mem: Int32, trie: Trie, config: int) -> int:
    """`tokens_of` a configuration, 0 after the end token; or an error. Ways must have been found."""
    if config == L.FINISHED:
        return 0
    at = mem[L.AT_CONFIG] + 3 * config
    return tokens_of(mem, trie, mem[at], mem[at + 1])
