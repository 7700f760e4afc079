"""Kernel: carries out the returns, loop ends and pushes of a closure (phases A and B of a step, see `run`)."""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import ACCEPT_NODE, N_CALL, N_END, N_ENTER, N_RETURN, RETURN_NODE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.exits import exits_of, is_transparent, normal
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    intern_list,
    intern_sorted,
    lower_bound,
    merge,
    singleton,
    sort_ints,
    union,
)
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.states import intern_state
from dotllm.jit import I, inner_kernel

# Kernels: hold the closure in progress.
#
# There is one item for each node, with one frame set. Pushes wait in a heap, returns in a list.


@inner_kernel(nb.void(MEM))
def begin(mem: Int32) -> None:
    """Start a closure: forget every node touched by the previous one."""
    mem[L.H_STAMP] += 1
    mem[L.H_TOUCHED] = 0
    mem[L.H_WORK] = 0
    mem[L.H_PENDING] = 0
    mem[L.H_BUFFER] = 0


@inner_kernel(nb.void(MEM, I))
def heap_push(mem: Int32, node: int) -> None:
    """Queue a push, ordered by rank."""
    heap, rank = mem[L.H_HEAP], mem[L.H_RANK]
    at = mem[L.H_PENDING]
    mem[L.H_PENDING] += 1
    while at > 0:
        up = (at - 1) >> 1
        if mem[rank + mem[heap + up]] <= mem[rank + node]:
            break
        mem[heap + at] = mem[heap + up]
        at = up
    mem[heap + at] = node


@inner_kernel(I(MEM))
def heap_pop(mem: Int32) -> int:
    """The queued push of lowest rank."""
    heap, rank = mem[L.H_HEAP], mem[L.H_RANK]
    first = mem[heap]
    mem[L.H_PENDING] -= 1
    n = mem[L.H_PENDING]
    x = mem[heap + n]
    at = 0
    child = 1
    while child < n:
        if child + 1 < n and mem[rank + mem[heap + child + 1]] < mem[rank + mem[heap + child]]:
            child += 1
        if mem[rank + mem[heap + child]] >= mem[rank + x]:
            break
        mem[heap + at] = mem[heap + child]
        at = child
        child = 2 * at + 1
    mem[heap + at] = x
    return I(first)


@inner_kernel(I(MEM, I, I))
def touch(mem: Int32, node: int, frames: int) -> int:
    """Add the item (node, frames) to the closure, or merge it with the node's item. Returns 0, or an error."""
    seen, acc = mem[L.H_SEEN] + node, mem[L.H_ACC] + node
    kind = mem[mem[L.H_KIND] + node]
    if mem[seen] != mem[L.H_STAMP]:
        mem[seen] = mem[L.H_STAMP]
        mem[acc] = frames
        mem[mem[L.H_TOUCH_LIST] + mem[L.H_TOUCHED]] = node
        mem[L.H_TOUCHED] += 1
        mem[mem[L.H_QUEUED] + node] = 0
        if kind == N_CALL or kind == N_ENTER:
            heap_push(mem, node)
    else:
        merged = merge(mem, mem[acc], frames)
        if merged >= 0 and kind != N_RETURN and kind != N_END:
            merged = normal(mem, merged)
        if merged < 0:
            return merged
        if merged == mem[acc]:
            return 0
        mem[acc] = merged
    if (kind == N_RETURN or kind == N_END) and mem[mem[L.H_QUEUED] + node] == 0:
        mem[mem[L.H_QUEUED] + node] = 1
        mem[mem[L.H_WORK_LIST] + mem[L.H_WORK]] = node
        mem[L.H_WORK] += 1
    return 0


@inner_kernel(I(MEM, I))
def leave_transparent(mem: Int32, fs: int) -> int:
    """Continue at the exits of all transparent frames of ``fs``. 0, or an error."""
    sets, pool = mem[L.AT_FRAMESET], mem[L.AT_POOL]
    for i in range(mem[sets + 2 * fs + 1]):
        frame = I(mem[pool + mem[sets + 2 * fs] + i])
        if not is_transparent(mem, frame):
            continue
        unit = exits_of(mem, frame)
        if unit < 0:
            return unit
        for exit in range(unit, unit + mem[mem[L.AT_TAILS] + 3 * unit + 2]):
            at = mem[L.AT_TAILS] + 3 * exit
            done = touch(mem, mem[at], mem[at + 1])
            if done < 0:
                return done
        mem[L.H_FUEL] -= mem[mem[L.AT_TAILS] + 3 * unit + 2]
    return 0


@inner_kernel(I(MEM, I, I, I))
def add_closure(mem: Int32, target: int, frames: int, pushing: int) -> int:
    """Add everything reached from ``target`` without consuming. ``pushing``: 1 in phase B, which skips returns and loop
    ends."""
    start = mem[mem[L.H_CLOSURE_START] + target]
    end = mem[mem[L.H_CLOSURE_START] + target + 1]
    closure, kind = mem[L.H_CLOSURE], mem[L.H_KIND]
    mem[L.H_FUEL] -= 1 + end - start
    if mem[L.H_FUEL] < 0:
        return L.OUT_OF_FUEL
    for i in range(start, end):
        node = mem[closure + i]
        if pushing != 0 and (mem[kind + node] == N_RETURN or mem[kind + node] == N_END):
            continue
        done = touch(mem, node, frames)
        if done < 0:
            return done
    return 0


@inner_kernel(I(MEM, I, I))
def return_to(mem: Int32, label: int, frames: int) -> int:
    """Continue at the return node of a frame, with the frames below it; and, if the frame is optional (see `exits`), at
    the end of its rule. 0, or an error."""
    if label < mem[L.H_NODES]:
        return add_closure(mem, label, frames, 0)
    done = touch(mem, RETURN_NODE, frames)
    return done if done < 0 else add_closure(mem, label - I(mem[L.H_NODES]), frames, 0)


# Kernel: returns from a rule through many frames together.
#
# In highly ambiguous grammars a rule's end has hundreds of frames, most of them with one of a few return nodes. The
# frames below all frames with the same return node are united before the item continues there. If they were added one
# by one, each union would be a new frame set in every node of the closure.


@inner_kernel(I(MEM, I))
def return_through(mem: Int32, fs: int) -> int:
    """Continue at the return nodes of all frames of ``fs`` except holes. 0, or an error."""
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    first, n = pool + mem[sets + 2 * fs], mem[sets + 2 * fs + 1]
    labels = buffer_room(mem, 3 * n + 1)
    if labels < 0:
        return labels
    top = mem[L.H_BUFFER]
    mem[L.H_BUFFER] += 3 * n + 1
    starts, parents = labels + n, labels + 2 * n + 1  # where the parents of each label begin; parents by label
    m = 0
    for i in range(n):
        label = mem[frames + 3 * mem[first + i]]
        if label >= 0:
            mem[labels + m] = label
            m += 1
        elif label == L.ROOT:
            done = touch(mem, ACCEPT_NODE, 0)
            if done < 0:
                return done
        elif label != L.HOLE:
            return L.FAULT
    sort_ints(mem, labels, m)
    count = 0
    for i in range(m):
        if i == 0 or mem[labels + i] != mem[labels + i - 1]:
            mem[labels + count] = mem[labels + i]
            mem[starts + count] = i
            count += 1
    mem[starts + count] = m
    for i in range(n):
        label = mem[frames + 3 * mem[first + i]]
        if label < 0:
            continue
        at = lower_bound(mem, labels, 1, count, label)
        mem[parents + mem[starts + at]] = mem[frames + 3 * mem[first + i] + 2]
        mem[starts + at] += 1  # (in the end, this is where the parents of the next label begin)
    for i in range(count):
        begin = mem[starts + i - 1] if i > 0 else 0
        end = mem[starts + i]
        below = I(mem[parents + begin])
        if end - begin > 1:
            length = 0
            for j in range(begin, end):
                length += mem[sets + 2 * mem[parents + j] + 1]
            mem[L.H_FUEL] -= length
            if mem[L.H_FUEL] < 0:
                return L.OUT_OF_FUEL
            at = buffer_room(mem, length)
            if at < 0:
                return at
            length = 0
            for j in range(begin, end):
                other = pool + mem[sets + 2 * mem[parents + j]]
                for k in range(mem[sets + 2 * mem[parents + j] + 1]):
                    mem[at + length] = mem[other + k]
                    length += 1
            below = intern_sorted(mem, at, length)
            if below < 0:
                return below
        done = return_to(mem, mem[labels + i], below)
        if done < 0:
            return done
    mem[L.H_BUFFER] = top
    return 0


_FEW = 4  # maximum number of frames that are popped one by one


@inner_kernel(I(MEM, I))
def part_set(mem: Int32, part: int) -> int:
    """The set of one part of an unordered sequence.

    Sets of parts are interned like frame sets, but hold numbers below zero, because a frame set must not get its number
    before its frames exist (`frames` relies on this order).
    """
    at = buffer_room(mem, 1)
    if at < 0:
        return at
    mem[at] = -1 - part
    result = intern_list(mem, L.L_FRAMESET, at, 1)
    return result if result < 0 else result >> 1


@inner_kernel(nb.boolean(MEM, I, I))
def is_used(mem: Int32, used: int, part: int) -> bool:
    """Whether a part of an unordered sequence is in the set of used ones (see `part_set`)."""
    entry = mem[L.AT_FRAMESET] + 2 * used
    first, value = mem[L.AT_POOL] + mem[entry], -1 - part
    at = lower_bound(mem, first, 1, mem[entry + 1], value)
    return at < mem[entry + 1] and mem[first + at] == value


@inner_kernel(I(MEM, I, I, I))
def used_after(mem: Int32, node: int, first: int, used: int) -> int:
    """The set of used parts after the END ``node`` of a part; the parts begin at ``first``. Or an error."""
    loop = I(mem[mem[L.H_A] + node])
    once, parts = I(mem[mem[L.H_LOOP_MIN] + loop]) >> 15, -2 - I(mem[mem[L.H_LOOP_MAX] + loop])
    part = node - first - parts
    if part >= once:
        return used
    after = part_set(mem, part)
    return union(mem, used, after) if after >= 0 and used != 0 else after


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
    """Whether an unordered sequence may continue: some part may still come. The nodes of parts begin at ``first``."""
    once, parts = mem[mem[L.H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[L.H_LOOP_MAX] + loop]
    starts = mem[L.H_CLOSURE_START] + first
    for part in range(parts):
        if mem[starts + part] < mem[starts + part + 1] and (part >= once or not is_used(mem, used, part)):
            return True
    return False


@inner_kernel(I(MEM, I, I, I, I))
def push_parts(mem: Int32, loop: int, first: int, used: int, parent: int) -> int:
    """Continue at every part of an unordered sequence that may come next. All stand on the same frame: a part counts as
    used only when it ends, so a state does not need a set of used parts for each part that may come."""
    once, parts = mem[mem[L.H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[L.H_LOOP_MAX] + loop]
    starts = mem[L.H_CLOSURE_START] + first
    mem[L.H_FUEL] -= parts
    top = singleton(mem, frame(mem, L.LOOP - loop, used, parent))
    if top < 0:
        return top
    for part in range(parts):
        if mem[starts + part] == mem[starts + part + 1]:
            continue  # nothing satisfies it
        if part < once and is_used(mem, used, part):
            continue
        done = add_closure(mem, first + part, top, 1)
        if done < 0:
            return done
    return 0


@inner_kernel(I(MEM, I, I, I, I))
def push_rounds(mem: Int32, loop: int, first: int, count: int, parent: int) -> int:
    """Continue at every transition of a state of a counted network from which a final state is near enough. ``first``:
    the state's first transition; ``count``: edges so far (or the mark of a count that no token brings to the limit)."""
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
    """The frames of a call that has been popped off the heap and of all other calls of its rule: they follow it in the
    heap, and no other node has their rank."""
    b, acc, heap, rank = mem[L.H_B], mem[L.H_ACC], mem[L.H_HEAP], mem[L.H_RANK]
    n = 0
    while True:
        number = frame(mem, mem[b + node], 0, mem[acc + node])
        if number < 0:
            return number
        at = buffer_room(mem, n + 1)
        if at < 0:
            return at
        mem[at + n] = number
        n += 1
        if mem[L.H_PENDING] == 0 or mem[rank + mem[heap]] != mem[rank + node]:
            break
        node = heap_pop(mem)
    return intern_sorted(mem, at, n)


@inner_kernel(I(MEM, I, I, I, I), inlined=True)
def end_of_round(mem: Int32, node: int, loop: int, count: int, parent: int) -> int:
    """Continue after a loop's END node, whose counter has been popped: after the loop, or with another round. 0, or an
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
    if high < -1:  # an unordered sequence: ``to`` is the first part, below zero at the end of a part
        if to > 0:
            return push_parts(mem, loop, to, count, parent)
        count = used_after(mem, node, -to, count)
        if count < 0:
            return count
        leave = has_required(mem, loop, count)
        again = has_free_part(mem, loop, -to, count)
    elif count == L.FAR_BELOW:
        leave = False
    elif count >= 0:
        count += 1
        leave = count >= low
        again = high < 0 or count < high
        if high < 0 and count > low:
            count = low  # without an upper limit, rounds beyond the lower one are not counted
    if leave:
        done = add_closure(mem, after, parent, 0)
        if done < 0:
            return done
    if again:
        top = singleton(mem, frame(mem, L.LOOP - loop, count, parent))
        # (the separator of an unordered sequence may be empty, so its end is not bypassed)
        pushing = 1 if high >= -1 else 0
        return top if top < 0 else add_closure(mem, mem[mem[L.H_LOOP_BODY] + loop], top, pushing)
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
            return I(0) if is_transparent(mem, number) else return_to(mem, label, parent)
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
        if mem[mem[L.H_KIND] + node] == N_RETURN:
            done = leave_transparent(mem, fs)
            if done < 0:
                return done
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
    """Drop the frames of a return or a loop's end that have been popped. Returns the number of holes left, or an
    error."""
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
    """The raw state of the items that wait: for bytes, tokens, the end, or the symbol on top of the stack. Or an
    error."""
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
    """Carry out phases A and B on the touched nodes, then intern the result. Returns the raw state, or an error."""
    done = pop_frames(mem)
    if done >= 0:
        done = push_frames(mem)
    return collect_items(mem) if done >= 0 else done
