"""Kernels: one step of the machine, found once and then remembered.

A step takes the items of a state over one byte class and *closes* the result:

 A. returns and loop ends are carried out until nothing changes: a frame is popped, the item goes on at its return
 node with
    the frames below. Only frames that existed before the step are popped, so the order does not matter.
 B. pushes (calls, loop entries) are carried out in left-corner order (`rank`), so the frames of a caller are complete
 before
    they become part of a callee's frame. A rule that can be empty has a bypass in the closures, so its RETURN is
    ignored here and B never pops.

What is left are items that wait for a byte, a token or the end; and items that returned through a hole, which wait for
the symbol on top of the stack (`reduce`). Frame sets of the same node are merged: one item per node, however many
derivations lead there (the graph-structured stack of M. Tomita, 1985, cut into symbols).
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    hole,
    intern_list,
    intern_sorted,
    singleton,
    sort_ints,
    triple_get,
    triple_put,
    union,
)  # fmt: skip
from dotllm.automata.machine.layout import (
    ACCEPTS,
    BUFFER,
    COMPLEX,
    DEAD,
    DELTA,
    FAR_BELOW,
    FAR_INSIDE,
    FAULT,
    FRAME,
    FRAMESET,
    FULL,
    H_A,
    H_ACC,
    H_B,
    H_BUFFER,
    H_CHARSET,
    H_CLASS_BYTE,
    H_CLASSES,
    H_CLOSURE,
    H_CLOSURE_START,
    H_EDGE_BYTES,
    H_EDGE_START,
    H_EDGE_TARGET,
    H_FUEL,
    H_HEAP,
    H_KIND,
    H_LOOP_AFTER,
    H_LOOP_BODY,
    H_LOOP_MAX,
    H_LOOP_MIN,
    H_PENDING,
    H_QUEUED,
    H_RANK,
    H_REACH,
    H_SEEN,
    H_STAMP,
    H_TOUCH_LIST,
    H_TOUCHED,
    H_WORK,
    H_WORK_LIST,
    HAS_CHARSET,
    HAS_TOKENS,
    HOLE,
    L_STATE,
    L_SYMBOL,
    LOOP,
    OUT_OF_FUEL,
    PENDING,
    POOL,
    ROOT,
    S_CORE,
    S_FLAGS,
    S_HOLES,
    S_LENGTH,
    S_MEMO,
    S_OFFSET,
    S_PUSH,
    S_SPARE,
    STATE,
    SYMBOL,
    T_CANON,
    T_CANON_FRAMES,
    T_COMPOSE,
    T_REDUCE,
    T_SUBST,
    UNKNOWN,
    R,
)  # fmt: skip
from dotllm.jit import kernel

MEM = nb.int32[::1]
I = nb.int64

N_PLAIN, N_BYTE, N_CALL, N_ENTER, N_END, N_RETURN, N_TOKENS, N_ACCEPT = range(8)
RETURN_NODE, ACCEPT_NODE = 0, 1


@kernel(nb.void(MEM))
def begin(mem: Int32) -> None:
    """Start a closure: forget every node touched by the one before."""
    mem[H_STAMP] += 1
    mem[H_TOUCHED] = 0
    mem[H_WORK] = 0
    mem[H_PENDING] = 0
    mem[H_BUFFER] = 0


@kernel(nb.void(MEM, I))
def heap_push(mem: Int32, node: int) -> None:
    """Queue a push, ordered by rank."""
    heap, rank = mem[H_HEAP], mem[H_RANK]
    at = mem[H_PENDING]
    mem[H_PENDING] += 1
    while at > 0:
        up = (at - 1) >> 1
        if mem[rank + mem[heap + up]] <= mem[rank + node]:
            break
        mem[heap + at] = mem[heap + up]
        at = up
    mem[heap + at] = node


@kernel(I(MEM))
def heap_pop(mem: Int32) -> int:
    """The queued push of lowest rank."""
    heap, rank = mem[H_HEAP], mem[H_RANK]
    first = mem[heap]
    mem[H_PENDING] -= 1
    n = mem[H_PENDING]
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


@kernel(I(MEM, I, I))
def touch(mem: Int32, node: int, frames: int) -> int:
    """Add the item (node, frames) to the closure, merging. Returns 0, or an error."""
    seen, acc = mem[H_SEEN] + node, mem[H_ACC] + node
    kind = mem[mem[H_KIND] + node]
    if mem[seen] != mem[H_STAMP]:
        mem[seen] = mem[H_STAMP]
        mem[acc] = frames
        mem[mem[H_TOUCH_LIST] + mem[H_TOUCHED]] = node
        mem[H_TOUCHED] += 1
        mem[mem[H_QUEUED] + node] = 0
        if kind == N_CALL or kind == N_ENTER:
            heap_push(mem, node)
    else:
        merged = union(mem, mem[acc], frames)
        if merged < 0:
            return merged
        if merged == mem[acc]:
            return 0
        mem[acc] = merged
    if (kind == N_RETURN or kind == N_END) and mem[mem[H_QUEUED] + node] == 0:
        mem[mem[H_QUEUED] + node] = 1
        mem[mem[H_WORK_LIST] + mem[H_WORK]] = node
        mem[H_WORK] += 1
    return 0


@kernel(I(MEM, I, I, I))
def add_closure(mem: Int32, target: int, frames: int, pushing: int) -> int:
    """Add everything reached from ``target`` without consuming. ``pushing``: phase B, returns and loop ends are
    bypassed."""
    start = mem[mem[H_CLOSURE_START] + target]
    end = mem[mem[H_CLOSURE_START] + target + 1]
    closure, kind = mem[H_CLOSURE], mem[H_KIND]
    mem[H_FUEL] -= 1 + end - start
    if mem[H_FUEL] < 0:
        return OUT_OF_FUEL
    for i in range(start, end):
        node = mem[closure + i]
        if pushing != 0 and (mem[kind + node] == N_RETURN or mem[kind + node] == N_END):
            continue
        done = touch(mem, node, frames)
        if done < 0:
            return done
    return 0


@kernel(I(MEM, I, I))
def intern_symbol(mem: Int32, at: int, n: int) -> int:
    """The symbol of the n frame sets at mem[at:]; notes whether it only renames holes."""
    found = intern_list(mem, L_SYMBOL, at, n)
    if found < 0:
        return found
    symbol = found >> 1
    if found & 1:
        sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
        bare = 1
        for i in range(n):
            fs = mem[at + i]
            if mem[sets + 2 * fs + 1] != 1 or mem[frames + 3 * mem[pool + mem[sets + 2 * fs]]] != HOLE:
                bare = 0
        mem[mem[R + 3 * SYMBOL] + 3 * symbol + 2] = bare
    return symbol


@kernel(I(MEM, I, I))
def intern_state(mem: Int32, at: int, n: int) -> int:
    """The raw state of the n items at mem[at:], with its core and its symbol worked out if it is new."""
    found = intern_list(mem, L_STATE, at, 2 * n)
    if found < 0:
        return found
    state = found >> 1
    entry = mem[R + 3 * STATE] + 8 * state
    # (a state whose initialisation was cut short by FULL has S_CORE unset: 0)
    if (found & 1) == 0 and mem[entry + S_CORE] != 0:
        return state
    kind, charset = mem[H_KIND], mem[H_CHARSET]
    classes = mem[H_CLASSES]
    row = mem[R + 3 * DELTA] + state * classes
    if (state + 1) * classes > mem[R + 3 * DELTA + 1]:
        return FULL - DELTA
    flags = 0
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    # distinct frame sets, in order of appearance, become holes
    top = mem[H_BUFFER]
    base = mem[R + 3 * BUFFER]
    if top + 4 * n > mem[R + 3 * BUFFER + 1]:
        return FULL - BUFFER
    cut = base + top + 2 * n  # (the items themselves may lie at the top of the buffer)
    holes = 0
    for i in range(n):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        k = mem[kind + node]
        if k == N_RETURN or k == N_END:
            flags |= PENDING | COMPLEX
        elif k == N_ACCEPT:
            flags |= ACCEPTS
        elif k == N_TOKENS:
            flags |= HAS_TOKENS
        if mem[charset + node] >= 0:
            flags |= HAS_CHARSET
        if fs == 0:
            continue
        known = False
        for j in range(holes):
            if mem[cut + j] == fs:
                known = True
                break
        if not known:
            mem[cut + holes] = fs
            holes += 1
    mem[H_BUFFER] = top + 2 * n + holes
    identity = True
    core = state
    push = I(-1)
    if (flags & PENDING) == 0:
        for j in range(holes):
            h = hole(mem, j)
            if h < 0:
                mem[H_BUFFER] = top
                return h
            if h != mem[cut + j]:
                identity = False
        if not identity:
            symbol = intern_symbol(mem, cut, holes)
            if symbol < 0:
                mem[H_BUFFER] = top
                return symbol
            push = symbol
            flags |= COMPLEX
            start = mem[H_BUFFER]
            if start + 2 * n > mem[R + 3 * BUFFER + 1]:
                mem[H_BUFFER] = top
                return FULL - BUFFER
            mem[H_BUFFER] = start + 2 * n
            for i in range(n):
                fs = mem[items + 2 * i + 1]
                mem[base + start + 2 * i] = mem[items + 2 * i]
                if fs != 0:
                    for j in range(holes):
                        if mem[cut + j] == fs:
                            h = hole(mem, j)
                            if h < 0:
                                mem[H_BUFFER] = top
                                return h
                            fs = h
                            break
                mem[base + start + 2 * i + 1] = fs
            found = intern_list(mem, L_STATE, base + start, 2 * n)
            if found < 0:
                mem[H_BUFFER] = top
                return found
            core = found >> 1
            other = mem[R + 3 * STATE] + 8 * core
            if mem[other + S_CORE] == 0:
                if (core + 1) * classes > mem[R + 3 * DELTA + 1]:
                    mem[H_BUFFER] = top
                    return FULL - DELTA
                # first delta, then S_CORE: an entry with S_CORE set is complete
                clear = mem[R + 3 * DELTA] + core * classes
                for i in range(classes):
                    mem[clear + i] = UNKNOWN
                mem[other + S_PUSH] = -1
                mem[other + S_FLAGS] = flags & ~COMPLEX
                mem[other + S_HOLES] = holes
                mem[other + S_MEMO] = -1
                mem[other + S_SPARE] = -1
                mem[other + S_CORE] = core
    for i in range(classes):
        mem[row + i] = UNKNOWN
    mem[entry + S_PUSH] = push
    mem[entry + S_FLAGS] = flags
    mem[entry + S_HOLES] = holes
    mem[entry + S_MEMO] = -1
    mem[entry + S_SPARE] = -1
    mem[entry + S_CORE] = core
    mem[H_BUFFER] = top
    return state


@kernel(nb.boolean(MEM, I, I))
def is_used(mem: Int32, used: int, part: int) -> bool:
    """Whether a part of an unordered sequence is in the set of used ones (sets of parts are interned as frame sets
    are)."""
    entry = mem[R + 3 * FRAMESET] + 2 * used
    first = mem[R + 3 * POOL] + mem[entry]
    for i in range(mem[entry + 1]):
        if mem[first + i] == part:
            return True
    return False


@kernel(nb.boolean(MEM, I, I))
def has_required(mem: Int32, loop: int, used: int) -> bool:
    """Whether an unordered sequence may end: its required parts (the first ones) have been used."""
    required = mem[mem[H_LOOP_MIN] + loop] & 0x7FFF
    entry = mem[R + 3 * FRAMESET] + 2 * used
    if mem[entry + 1] < required:
        return False
    # the set is sorted and has no repetitions
    return required == 0 or mem[mem[R + 3 * POOL] + mem[entry] + required - 1] == required - 1


@kernel(nb.boolean(MEM, I, I, I))
def has_free_part(mem: Int32, loop: int, first: int, used: int) -> bool:
    """Whether an unordered sequence may go on: some part, whose nodes begin at ``first``, may still come."""
    once, parts = mem[mem[H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[H_LOOP_MAX] + loop]
    starts = mem[H_CLOSURE_START] + first
    for part in range(parts):
        if mem[starts + part] < mem[starts + part + 1] and (part >= once or not is_used(mem, used, part)):
            return True
    return False


@kernel(I(MEM, I, I, I, I))
def push_parts(mem: Int32, loop: int, first: int, used: int, parent: int) -> int:
    """Go on at every part of an unordered sequence that may come next, each with itself added to the used ones."""
    once, parts = mem[mem[H_LOOP_MIN] + loop] >> 15, -2 - mem[mem[H_LOOP_MAX] + loop]
    starts = mem[H_CLOSURE_START] + first
    mem[H_FUEL] -= parts
    for part in range(parts):
        if mem[starts + part] == mem[starts + part + 1]:
            continue  # nothing satisfies it
        after = used
        if part < once:
            if is_used(mem, used, part):
                continue
            after = singleton(mem, part)
            if after >= 0 and used != 0:
                after = union(mem, used, after)
        if after < 0:
            return after
        top = singleton(mem, frame(mem, LOOP - loop, after, parent))
        if top < 0:
            return top
        done = add_closure(mem, first + part, top, 1)
        if done < 0:
            return done
    return 0


@kernel(I(MEM))
def settle(mem: Int32) -> int:
    """Phases A and B on what was touched, then intern the result. Returns the raw state, or an error."""
    kind, acc = mem[H_KIND], mem[H_ACC]
    sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
    a, b = mem[H_A], mem[H_B]
    while mem[H_WORK] > 0:  # A
        mem[H_WORK] -= 1
        node = mem[mem[H_WORK_LIST] + mem[H_WORK]]
        mem[mem[H_QUEUED] + node] = 0
        fs = mem[acc + node]
        first = pool + mem[sets + 2 * fs]
        for i in range(mem[sets + 2 * fs + 1]):
            at = frames + 3 * mem[first + i]
            label, count, parent = mem[at], mem[at + 1], mem[at + 2]
            if label == HOLE:
                continue
            if mem[kind + node] == N_RETURN:
                done = I(0)
                if label >= 0:
                    done = add_closure(mem, label, parent, 0)
                elif label == ROOT:
                    done = touch(mem, ACCEPT_NODE, 0)
                else:
                    return FAULT
                if done < 0:
                    return done
            else:
                loop = mem[a + node]
                if label != LOOP - loop:
                    return FAULT
                low, high = mem[mem[H_LOOP_MIN] + loop], mem[mem[H_LOOP_MAX] + loop]
                if high < -1 and mem[b + node] > 0:
                    done = push_parts(mem, loop, I(mem[b + node]), count, parent)
                    if done < 0:
                        return done
                    continue
                leave = True
                again = True
                if high < -1:
                    leave = has_required(mem, loop, count)
                    again = has_free_part(mem, loop, -I(mem[b + node]), count)
                elif count == FAR_BELOW:
                    leave = False
                elif count >= 0:
                    count += 1
                    leave = count >= low
                    again = high < 0 or count < high
                    if high < 0 and count > low:
                        count = low  # without an upper limit, enough is enough
                if leave:
                    done = add_closure(mem, mem[mem[H_LOOP_AFTER] + loop], parent, 0)
                    if done < 0:
                        return done
                if again:
                    top = singleton(mem, frame(mem, label, count, parent))
                    if top < 0:
                        return top
                    done = add_closure(mem, mem[mem[H_LOOP_BODY] + loop], top, 1)
                    if done < 0:
                        return done
    while mem[H_PENDING] > 0:  # B
        node = heap_pop(mem)
        if mem[kind + node] == N_CALL:
            top = singleton(mem, frame(mem, mem[b + node], 0, mem[acc + node]))
            to = mem[a + node]
        elif mem[mem[H_LOOP_MAX] + mem[a + node]] < -1:
            done = push_parts(mem, I(mem[a + node]), I(mem[b + node]), 0, mem[acc + node])
            if done < 0:
                return done
            continue
        else:
            top = singleton(mem, frame(mem, LOOP - mem[a + node], 0, mem[acc + node]))
            to = mem[mem[H_LOOP_BODY] + mem[a + node]]
        if top < 0:
            return top
        done = add_closure(mem, to, top, 1)
        if done < 0:
            return done
    # what waits: bytes, tokens, the end, or the symbol on top of the stack
    n = 0
    touched = mem[H_TOUCH_LIST]
    for i in range(mem[H_TOUCHED]):
        node = mem[touched + i]
        k = mem[kind + node]
        if k == N_CALL or k == N_ENTER:
            continue
        if k == N_RETURN or k == N_END:
            fs = mem[acc + node]
            first = pool + mem[sets + 2 * fs]
            holes = 0
            for j in range(mem[sets + 2 * fs + 1]):
                if mem[frames + 3 * mem[first + j]] == HOLE:
                    holes += 1
            if holes == 0:
                continue
            if holes < mem[sets + 2 * fs + 1]:
                at = buffer_room(mem, holes)
                if at < 0:
                    return at
                holes = 0
                for j in range(mem[sets + 2 * fs + 1]):
                    if mem[frames + 3 * mem[first + j]] == HOLE:
                        mem[at + holes] = mem[first + j]
                        holes += 1
                only = intern_sorted(mem, at, holes)
                if only < 0:
                    return only
                mem[acc + node] = only
        mem[touched + n] = node
        n += 1
    if n == 0:
        return DEAD
    sort_ints(mem, touched, n)
    at = buffer_room(mem, 2 * n)
    if at < 0:
        return at
    for i in range(n):
        node = mem[touched + i]
        mem[at + 2 * i] = node
        mem[at + 2 * i + 1] = mem[acc + node]
    return intern_state(mem, at, n)


@kernel(I(MEM, I, I))
def step(mem: Int32, state: int, cls: int) -> int:
    """delta[state, cls]: the raw state after one byte of the class, found now. Returns it (0: dead), or an error."""
    begin(mem)
    byte = mem[mem[H_CLASS_BYTE] + cls]
    kind, edge_start = mem[H_KIND], mem[H_EDGE_START]
    edge_bytes, edge_target = mem[H_EDGE_BYTES], mem[H_EDGE_TARGET]
    entry = mem[R + 3 * STATE] + 8 * state
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    for i in range(mem[entry + S_LENGTH] // 2):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        if mem[kind + node] != N_BYTE:
            continue
        for e in range(mem[edge_start + node], mem[edge_start + node + 1]):
            packed = mem[edge_bytes + e]
            if (packed & 255) <= byte and byte <= (packed >> 8):
                done = add_closure(mem, mem[edge_target + e], fs, 0)
                if done < 0:
                    return done
    target = settle(mem)
    if target >= 0:
        mem[mem[R + 3 * DELTA] + state * mem[H_CLASSES] + cls] = target
    return target


@kernel(I(MEM, I, I, I))
def unmapped_below(mem: Int32, memo: int, fs: int, key: int) -> int:
    """List ``fs`` and all frame sets under it that have no entry in ``memo`` for ``key``; parents come before children.

    The list is put on the buffer (H_BUFFER is moved behind it). A frame set is made after those its frames stand on,
    so ascending numbers are the right order; no recursion is needed. Returns the length, or an error.
    """
    sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
    start = buffer_room(mem, 1)
    if start < 0:
        return start
    mem[start] = fs
    n = 1
    i = 0
    while i < n:
        one = mem[start + i]
        i += 1
        for j in range(mem[sets + 2 * one + 1]):
            at = frames + 3 * mem[pool + mem[sets + 2 * one] + j]
            label, parent = mem[at], mem[at + 2]
            if (label < 0 and label > LOOP) or parent == 0 or triple_get(mem, memo, parent, key, 0) >= 0:
                continue
            known = False
            for k in range(n):
                if mem[start + k] == parent:
                    known = True
                    break
            mem[H_FUEL] -= 1 + (n >> 3)
            if mem[H_FUEL] < 0:
                return OUT_OF_FUEL
            if known:
                continue
            if buffer_room(mem, n + 1) < 0:
                return FULL - BUFFER
            mem[start + n] = parent
            n += 1
    sort_ints(mem, start, n)
    mem[H_BUFFER] += n
    return n


@kernel(I(MEM, I, I))
def substitute(mem: Int32, fs: int, symbol: int) -> int:
    """``fs`` with every hole replaced by what ``symbol`` holds there."""
    if fs == 0:
        return 0
    result = triple_get(mem, T_SUBST, fs, symbol, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
    tuple_at = pool + mem[mem[R + 3 * SYMBOL] + 3 * symbol]
    bottom = mem[H_BUFFER]
    todo = unmapped_below(mem, T_SUBST, fs, symbol)
    if todo < 0:
        return todo
    top = mem[H_BUFFER]
    for t in range(todo):
        one_set = mem[mem[R + 3 * BUFFER] + bottom + t]
        n = 0
        for i in range(mem[sets + 2 * one_set + 1]):
            one = mem[pool + mem[sets + 2 * one_set] + i]
            label, count, parent = mem[frames + 3 * one], mem[frames + 3 * one + 1], mem[frames + 3 * one + 2]
            mem[H_FUEL] -= 1
            if mem[H_FUEL] < 0:
                return OUT_OF_FUEL
            if label == HOLE:
                other = mem[tuple_at + count]
                m = mem[sets + 2 * other + 1]
                at = buffer_room(mem, m)
                if at < 0:
                    return at
                for j in range(m):
                    mem[at + j] = mem[pool + mem[sets + 2 * other] + j]
                n += m
                mem[H_BUFFER] += m
            else:
                new = I(one)
                if label != ROOT:
                    below = I(0) if parent == 0 else triple_get(mem, T_SUBST, parent, symbol, 0)
                    new = frame(mem, label, count, below)
                    if new < 0:
                        return new
                at = buffer_room(mem, 1)
                if at < 0:
                    return at
                mem[at] = new
                n += 1
                mem[H_BUFFER] += 1
        result = intern_sorted(mem, mem[R + 3 * BUFFER] + top, n)
        mem[H_BUFFER] = top
        if result < 0:
            return result
        result = triple_put(mem, T_SUBST, one_set, symbol, 0, result)
        if result < 0:
            return result
    mem[H_BUFFER] = bottom
    return triple_get(mem, T_SUBST, fs, symbol, 0)


@kernel(I(MEM, I, I))
def reduce(mem: Int32, state: int, symbol: int) -> int:
    """The raw state when ``state``, which is pending, meets ``symbol`` on top of the stack (and the symbol is
    popped)."""
    found = triple_get(mem, T_REDUCE, state, symbol, 0)
    if found >= 0:
        return found
    begin(mem)
    entry = mem[R + 3 * STATE] + 8 * state
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    for i in range(mem[entry + S_LENGTH] // 2):
        filled = substitute(mem, mem[items + 2 * i + 1], symbol)
        if filled < 0:
            return filled
        done = touch(mem, mem[items + 2 * i], filled)
        if done < 0:
            return done
    target = settle(mem)
    if target < 0:
        return target
    return triple_put(mem, T_REDUCE, state, symbol, 0, target)


@kernel(I(MEM, I, I))
def compose(mem: Int32, upper: int, lower: int) -> int:
    """One symbol that stands for ``upper`` pushed on ``lower`` (used when ``upper`` only renames holes)."""
    found = triple_get(mem, T_COMPOSE, upper, lower, 0)
    if found >= 0:
        return found
    mem[H_BUFFER] = 0
    entry = mem[R + 3 * SYMBOL] + 3 * upper
    n = mem[entry + 1]
    at = buffer_room(mem, n)
    if at < 0:
        return at
    mem[H_BUFFER] = n
    for i in range(n):
        filled = substitute(mem, mem[mem[R + 3 * POOL] + mem[entry] + i], lower)
        if filled < 0:
            return filled
        mem[at + i] = filled
    symbol = intern_symbol(mem, at, n)
    if symbol < 0:
        return symbol
    return triple_put(mem, T_COMPOSE, upper, lower, 0, symbol)


@kernel(I(MEM, I))
def canonical_frames(mem: Int32, fs: int) -> int:
    """``fs`` with every counter that no single token can bring to a limit mapped to FAR_INSIDE or FAR_BELOW."""
    if fs == 0:
        return 0
    result = triple_get(mem, T_CANON_FRAMES, fs, 0, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
    bottom = mem[H_BUFFER]
    todo = unmapped_below(mem, T_CANON_FRAMES, fs, 0)
    if todo < 0:
        return todo
    for t in range(todo):
        one_set = mem[mem[R + 3 * BUFFER] + bottom + t]
        n = mem[sets + 2 * one_set + 1]
        at = buffer_room(mem, n + 1)
        if at < 0:
            return at
        mem[H_BUFFER] += n
        for i in range(n):
            one = mem[pool + mem[sets + 2 * one_set] + i]
            label, count, parent = mem[frames + 3 * one], mem[frames + 3 * one + 1], mem[frames + 3 * one + 2]
            new = I(one)
            if label >= 0 or label <= LOOP:
                below = I(0) if parent == 0 else triple_get(mem, T_CANON_FRAMES, parent, 0, 0)
                if label <= LOOP and count >= 0:
                    loop = LOOP - label
                    low, high = mem[mem[H_LOOP_MIN] + loop], mem[mem[H_LOOP_MAX] + loop]
                    far_from_high = high < 0 or high - count > mem[H_REACH]
                    if high < -1:
                        pass  # an unordered sequence: the set of used parts, not a number
                    elif count >= low and high >= 0 and far_from_high:
                        count = FAR_INSIDE
                    elif low - count > mem[H_REACH] and far_from_high:
                        count = FAR_BELOW
                new = frame(mem, label, count, below)
                if new < 0:
                    return new
            mem[at + i] = new
        mem[H_BUFFER] -= n
        result = intern_sorted(mem, at, n)
        if result < 0:
            return result
        result = triple_put(mem, T_CANON_FRAMES, one_set, 0, 0, result)
        if result < 0:
            return result
    mem[H_BUFFER] = bottom
    return triple_get(mem, T_CANON_FRAMES, fs, 0, 0)


@kernel(I(MEM, I))
def canonical(mem: Int32, symbol: int) -> int:
    """The symbol that every token treats alike (see canonical_frames)."""
    found = triple_get(mem, T_CANON, symbol, 0, 0)
    if found >= 0:
        return found
    mem[H_BUFFER] = 0
    entry = mem[R + 3 * SYMBOL] + 3 * symbol
    n = mem[entry + 1]
    at = buffer_room(mem, n)
    if at < 0:
        return at
    mem[H_BUFFER] = n
    for i in range(n):
        new = canonical_frames(mem, mem[mem[R + 3 * POOL] + mem[entry] + i])
        if new < 0:
            return new
        mem[at + i] = new
    result = intern_symbol(mem, at, n)
    if result < 0:
        return result
    return triple_put(mem, T_CANON, symbol, 0, 0, result)
