"""Kernel: carries out the returns, loop ends and pushes of a closure (phases A and B of `step`)."""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import ACCEPT_NODE, N_CALL, N_END, N_ENTER, N_RETURN
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure_worklist import add_closure, heap_pop, touch
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    intern_list,
    intern_sorted,
    singleton,
    sort_ints,
    union,
)
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.returns import return_through
from dotllm.automata.machine.states import intern_state
from dotllm.jit import I, inner_kernel

_FEW = 4  # frames that are popped one after another


@inner_kernel(I(MEM, I))
def part_set(mem: Int32, part: int) -> int:
    """The set of one part of an unordered sequence.

    Sets of parts are interned as frame sets are, but hold numbers below zero: a set of frames must not have been
    numbered before its frames were there (`frames` goes by the order).
    """
    at = buffer_room(mem, 1)
    if at < 0:
        return at
    mem[at] = -1 - part
    found = intern_list(mem, L.L_FRAMESET, at, 1)
    return found if found < 0 else found >> 1


@inner_kernel(nb.boolean(MEM, I, I))
def is_used(mem: Int32, used: int, part: int) -> bool:
    """Whether a part of an unordered sequence is in the set of used ones (see `part_set`)."""
    entry = mem[L.AT_FRAMESET] + 2 * used
    first = mem[L.AT_POOL] + mem[entry]
    for i in range(mem[entry + 1]):
        if mem[first + i] == -1 - part:
            return True
    return False


@inner_kernel(nb.boolean(MEM, I, I))
def has_required(mem: Int32, loop: int, used: int) -> bool:
    """Whether an unordered sequence may end: its required parts (the first ones) have been used."""
    required = mem[mem[L.H_LOOP_MIN] + loop] & 0x7FFF
    entry = mem[L.AT_FRAMESET] + 2 * used
    if mem[entry + 1] < required:
        return False
    # the set is sorted, the first parts last, and has no repetitions
    return required == 0 or mem[mem[L.AT_POOL] + mem[entry] + mem[entry + 1] - required] == -required


@inner_kernel(nb.boolean(MEM, I, I, I))
def has_free_part(mem: Int32, loop: int, first: int, used: int) -> bool:
    """Whether an unordered sequence may go on: some part, whose nodes begin at ``first``, may still come."""
    once, parts = mem[mem[L.H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[L.H_LOOP_MAX] + loop]
    starts = mem[L.H_CLOSURE_START] + first
    for part in range(parts):
        if mem[starts + part] < mem[starts + part + 1] and (part >= once or not is_used(mem, used, part)):
            return True
    return False


@inner_kernel(I(MEM, I, I, I, I))
def push_parts(mem: Int32, loop: int, first: int, used: int, parent: int) -> int:
    """Go on at every part of an unordered sequence that may come next, each with itself added to the used ones."""
    once, parts = mem[mem[L.H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[L.H_LOOP_MAX] + loop]
    starts = mem[L.H_CLOSURE_START] + first
    mem[L.H_FUEL] -= parts
    for part in range(parts):
        if mem[starts + part] == mem[starts + part + 1]:
            continue  # nothing satisfies it
        after = used
        if part < once:
            if is_used(mem, used, part):
                continue
            after = part_set(mem, part)
            if after >= 0 and used != 0:
                after = union(mem, used, after)
        if after < 0:
            return after
        top = singleton(mem, frame(mem, L.LOOP - loop, after, parent))
        if top < 0:
            return top
        done = add_closure(mem, first + part, top, 1)
        if done < 0:
            return done
    return 0


@inner_kernel(I(MEM, I, I, I, I))
def push_rounds(mem: Int32, loop: int, first: int, count: int, parent: int) -> int:
    """Go on at every way out of a state of a counted network from which a final state is near enough. ``first``: its
    first way out; ``count``: edges so far (or that no token can bring them to the limit)."""
    a, most = mem[L.H_A], mem[mem[L.H_LOOP_MAX] + loop]
    last = first + mem[mem[L.H_B] + first]
    top = singleton(mem, frame(mem, L.LOOP - loop, count, parent))
    if top < 0:
        return top
    for way in range(first, last + 1):
        if count >= 0 and count + mem[a + way] > most:
            continue
        done = add_closure(mem, way, top, 1)
        if done < 0:
            return done
    return 0


@inner_kernel(I(MEM, I))
def push_calls(mem: Int32, node: int) -> int:
    """The frames of a call that has been popped off the heap and of all others of the same rule: they follow it, and no
    other node has their rank."""
    b, acc, heap, rank = mem[L.H_B], mem[L.H_ACC], mem[L.H_HEAP], mem[L.H_RANK]
    n = 0
    while True:
        one = frame(mem, mem[b + node], 0, mem[acc + node])
        if one < 0:
            return one
        at = buffer_room(mem, n + 1)
        if at < 0:
            return at
        mem[at + n] = one
        n += 1
        if mem[L.H_PENDING] == 0 or mem[rank + mem[heap]] != mem[rank + node]:
            break
        node = heap_pop(mem)
    return intern_sorted(mem, at, n)


@inner_kernel(I(MEM, I, I, I, I), inlined=True)
def end_of_round(mem: Int32, node: int, loop: int, count: int, parent: int) -> int:
    """Go on where a loop's END node leads when its counter has been popped: behind the loop, or once more. 0, or an
    error."""
    low, high = mem[mem[L.H_LOOP_MIN] + loop], mem[mem[L.H_LOOP_MAX] + loop]
    to = I(mem[mem[L.H_B] + node])
    after = mem[mem[L.H_LOOP_AFTER] + loop]
    if low < 0:  # a counted network: ``to`` is the first transition, below zero if the state is final
        if to < 0:
            done = add_closure(mem, after, parent, 0)
            if done < 0:
                return done
        return push_rounds(mem, loop, abs(to), count + 1 if count >= 0 else count, parent)
    leave, again = True, True
    if high < -1:  # an unordered sequence: ``to`` is the first part, or below zero behind a part
        if to > 0:
            return push_parts(mem, loop, to, count, parent)
        leave = has_required(mem, loop, count)
        again = has_free_part(mem, loop, -to, count)
    elif count == L.FAR_BELOW:
        leave = False
    elif count >= 0:
        count += 1
        leave = count >= low
        again = high < 0 or count < high
        if high < 0 and count > low:
            count = low  # without an upper limit, enough is enough
    if leave:
        done = add_closure(mem, after, parent, 0)
        if done < 0:
            return done
    if again:
        top = singleton(mem, frame(mem, L.LOOP - loop, count, parent))
        return top if top < 0 else add_closure(mem, mem[mem[L.H_LOOP_BODY] + loop], top, 1)
    return 0


@inner_kernel(I(MEM, I, I), inlined=True)
def pop_frame(mem: Int32, node: int, number: int) -> int:
    """Carry out a return or the end of a round with one of the frames it stands on. 0, or an error."""
    at = mem[L.AT_FRAME] + 3 * number
    label, count, parent = I(mem[at]), I(mem[at + 1]), I(mem[at + 2])
    if label == L.HOLE:
        return 0
    if mem[mem[L.H_KIND] + node] == N_RETURN:
        if label >= 0:
            return add_closure(mem, label, parent, 0)
        return touch(mem, ACCEPT_NODE, 0) if label == L.ROOT else L.FAULT
    loop = I(mem[mem[L.H_A] + node])
    return end_of_round(mem, node, loop, count, parent) if label == L.LOOP - loop else L.FAULT


@inner_kernel(I(MEM), inlined=True)
def pop_frames(mem: Int32) -> int:
    """Phase A: returns and ends of rounds, until there are none. 0, or an error."""
    while mem[L.H_WORK] > 0:
        mem[L.H_WORK] -= 1
        node = mem[mem[L.H_WORK_LIST] + mem[L.H_WORK]]
        mem[mem[L.H_QUEUED] + node] = 0
        fs = mem[mem[L.H_ACC] + node]
        entry = mem[L.AT_FRAMESET] + 2 * fs
        first, n = mem[L.AT_POOL] + mem[entry], mem[entry + 1]
        if mem[mem[L.H_KIND] + node] == N_RETURN and n > _FEW:
            done = return_through(mem, fs)
            if done < 0:
                return done
            continue
        for i in range(n):
            done = pop_frame(mem, node, mem[first + i])
            if done < 0:
                return done
    return 0


@inner_kernel(I(MEM), inlined=True)
def push_frames(mem: Int32) -> int:
    """Phase B: calls and entries of loops, in the order of their rank. 0, or an error."""
    while mem[L.H_PENDING] > 0:
        node = heap_pop(mem)
        a, below = I(mem[mem[L.H_A] + node]), I(mem[mem[L.H_ACC] + node])
        if mem[mem[L.H_KIND] + node] == N_CALL:
            done = push_calls(mem, node)
            if done >= 0:
                done = add_closure(mem, a, done, 1)
        elif mem[mem[L.H_LOOP_MIN] + a] < 0:
            done = push_rounds(mem, a, I(mem[mem[L.H_B] + node]), 0, below)
        elif mem[mem[L.H_LOOP_MAX] + a] < -1:
            done = push_parts(mem, a, I(mem[mem[L.H_B] + node]), 0, below)
        else:
            done = singleton(mem, frame(mem, L.LOOP - a, 0, below))
            if done >= 0:
                done = add_closure(mem, mem[mem[L.H_LOOP_BODY] + a], done, 1)
        if done < 0:
            return done
    return 0


@inner_kernel(I(MEM, I), inlined=True)
def keep_holes(mem: Int32, node: int) -> int:
    """Drop the frames of a return or a loop's end that have been popped. How many holes are left, or an error."""
    fs = mem[mem[L.H_ACC] + node]
    entry = mem[L.AT_FRAMESET] + 2 * fs
    first, n = mem[L.AT_POOL] + mem[entry], mem[entry + 1]
    holes = 0
    for j in range(n):
        if mem[mem[L.AT_FRAME] + 3 * mem[first + j]] == L.HOLE:
            holes += 1
    if holes == 0 or holes == n:
        return holes
    at = buffer_room(mem, holes)
    if at < 0:
        return at
    holes = 0
    for j in range(n):
        if mem[mem[L.AT_FRAME] + 3 * mem[first + j]] == L.HOLE:
            mem[at + holes] = mem[first + j]
            holes += 1
    only = intern_sorted(mem, at, holes)
    if only < 0:
        return only
    mem[mem[L.H_ACC] + node] = only
    return holes


@inner_kernel(I(MEM), inlined=True)
def collect_items(mem: Int32) -> int:
    """The raw state of what waits: for bytes, tokens, the end, or the symbol on top of the stack. Or an error."""
    n = 0
    touched = mem[L.H_TOUCH_LIST]
    for i in range(mem[L.H_TOUCHED]):
        node = mem[touched + i]
        k = mem[mem[L.H_KIND] + node]
        if k == N_CALL or k == N_ENTER:
            continue
        if k == N_RETURN or k == N_END:
            holes = keep_holes(mem, node)
            if holes < 0:
                return holes
            if holes == 0:
                continue
        mem[touched + n] = node
        n += 1
    if n == 0:
        return L.DEAD
    sort_ints(mem, touched, n)
    at = buffer_room(mem, 2 * n)
    if at < 0:
        return at
    for i in range(n):
        node = mem[touched + i]
        mem[at + 2 * i] = node
        mem[at + 2 * i + 1] = mem[mem[L.H_ACC] + node]
    return intern_state(mem, at, n)


@inner_kernel(I(MEM))
def close(mem: Int32) -> int:
    """Phases A and B on what was touched, then intern the result. Returns the raw state, or an error."""
    done = pop_frames(mem)
    if done >= 0:
        done = push_frames(mem)
    return collect_items(mem) if done >= 0 else done
