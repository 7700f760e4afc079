"""The loops of the DFA algebra: determinise, product, minimise, trie.

A table is int32[states, classes], total; the canonical form that `canonical` gives every result is:

* state 0 is dead (not accepting, all transitions to itself), whether reachable or not;
* the start is state 1, or 0 when the language is empty;
* the other states are reachable, live, pairwise different, and numbered by breadth-first search in class order;
* no two columns are alike.

Every kernel that can explode takes ``max_states`` and ``fuel`` and reports the steps it took; a result of -1 states
means that a limit was hit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.jit import kernel

Array = NDArray[Any]
Int = Any  # an int64 inside a kernel, an int outside

_CANONICAL = "Tuple((int32[:, ::1], boolean[::1], int64, int32[::1], int64))"


@kernel("int32[::1](int32[::1])")
def _copy(old: Array) -> Array:
    new = np.empty(len(old), np.int32)
    for i in range(len(old)):
        new[i] = old[i]
    return new


@kernel("Tuple((int32[::1], int64))(int32[:, ::1], boolean[::1])")
def _equivalence(delta: Array, accepting: Array) -> tuple[Array, Int]:
    """The block of each state in the coarsest congruence, and the steps taken: Hopcroft (1971), O(n · k · log n).

    Blocks are slices of ``order``; states of a block that reach the splitter are swapped to its front. The new block is
    always the smaller half, which is also the half that must be looked at again, so a (block, class) pair is pushed
    exactly once.
    """
    n, k = delta.shape
    block = np.zeros(n, np.int32)
    accepted = 0
    for s in range(n):
        if accepting[s]:
            accepted += 1
    steps = np.int64(n * k)
    if accepted == 0 or accepted == n:
        return block, steps

    # Predecessors: source[first[c * n + t] : first[c * n + t + 1]] go to t under class c.
    first = np.zeros(n * k + 1, np.int32)
    for s in range(n):
        for c in range(k):
            first[c * n + delta[s, c] + 1] += 1
    for i in range(n * k):
        first[i + 1] += first[i]
    fill = _copy(first)
    source = np.empty(n * k, np.int32)
    for s in range(n):
        for c in range(k):
            slot = c * n + delta[s, c]
            source[fill[slot]] = s
            fill[slot] += 1

    order = np.empty(n, np.int32)
    place = np.empty(n, np.int32)
    begin = np.zeros(n + 1, np.int32)
    size = np.zeros(n, np.int32)
    marked = np.zeros(n, np.int32)
    large_is_accepting = accepted * 2 > n  # block 1, the first splitter, is the smaller half
    at, back = 0, n
    for s in range(n):
        if accepting[s] == large_is_accepting:
            order[at] = s
            place[s] = at
            at += 1
        else:
            back -= 1
            order[back] = s
            place[s] = back
            block[s] = 1
    size[0], size[1] = at, n - at
    begin[1] = at
    blocks = 2
    work = np.empty(n * k + k, np.int64)
    todo = 0
    for c in range(k):
        work[todo] = k + c
        todo += 1

    found = np.empty(n, np.int32)
    touched = np.empty(n, np.int32)
    while todo > 0:
        todo -= 1
        b = work[todo] // k
        c = work[todo] % k
        count = 0
        for i in range(begin[b], begin[b] + size[b]):
            slot = c * n + order[i]
            for j in range(first[slot], first[slot + 1]):
                found[count] = source[j]
                count += 1
        steps += count + size[b]
        hits = 0
        for i in range(count):
            s = found[i]
            x = block[s]
            if size[x] == 1:
                continue
            to = begin[x] + marked[x]
            if marked[x] == 0:
                touched[hits] = x
                hits += 1
            other = order[to]
            order[place[s]] = other
            place[other] = place[s]
            order[to] = s
            place[s] = to
            marked[x] += 1
        for i in range(hits):
            x = touched[i]
            m = marked[x]
            marked[x] = 0
            if m == size[x]:
                continue
            y = blocks
            blocks += 1
            if m * 2 <= size[x]:
                begin[y], size[y] = begin[x], m
                begin[x] += m
                size[x] -= m
            else:
                begin[y], size[y] = begin[x] + m, size[x] - m
                size[x] = m
            for j in range(begin[y], begin[y] + size[y]):
                block[order[j]] = y
            for d in range(k):
                work[todo] = np.int64(y) * k + d
                todo += 1
    return block, steps


@kernel(_CANONICAL + "(int32[:, ::1], boolean[::1], int64)")
def canonical(delta: Array, accepting: Array, start: Int) -> tuple[Array, Array, Int, Array, Int]:
    """(table, accepting, start, new class of each class, steps): the canonical form of a total automaton."""
    n, k = delta.shape
    block, steps = _equivalence(delta, accepting)
    # A representative per block; the dead block is the one that rejects and maps to itself under every class.
    sample = np.full(n, -1, np.int32)
    for s in range(n):
        if sample[block[s]] < 0:
            sample[block[s]] = s
    number = np.full(n, -1, np.int32)
    for b in range(n):
        s = sample[b]
        if s >= 0 and not accepting[s]:
            dead = True
            for c in range(k):
                if block[delta[s, c]] != b:
                    dead = False
                    break
            if dead:
                number[b] = 0
                break
    queue = np.empty(n + 1, np.int32)
    total = 1
    first = 0
    if number[block[start]] < 0:
        number[block[start]] = 1
        queue[1] = block[start]
        total = 2
        first = 1
    at = 1
    while at < total:
        s = sample[queue[at]]
        for c in range(k):
            b = block[delta[s, c]]
            if number[b] < 0:
                number[b] = total
                queue[total] = b
                total += 1
        at += 1
    table = np.zeros((total, k), np.int32)
    final = np.zeros(total, np.bool_)
    mixed = np.zeros(k, np.uint64)  # a hash per column
    for i in range(1, total):
        s = sample[queue[i]]
        final[i] = accepting[s]
        for c in range(k):
            t = number[block[delta[s, c]]]
            table[i, c] = t
            mixed[c] = (mixed[c] ^ np.uint64(t)) * np.uint64(0x9E3779B97F4A7C15)
            mixed[c] ^= mixed[c] >> np.uint64(29)
    column = np.empty(k, np.int32)
    kept = np.empty(k, np.int32)
    columns = 0
    for c in range(k):
        same = -1
        for j in range(columns):
            d = kept[j]
            if mixed[d] == mixed[c]:
                same = j
                for i in range(1, total):
                    if table[i, d] != table[i, c]:
                        same = -1
                        break
                if same >= 0:
                    break
        steps += columns
        if same < 0:
            same = columns
            kept[columns] = c
            columns += 1
        column[c] = same
    steps += total * k
    if columns == k:
        return table, final, first, column, steps
    narrow = np.empty((total, columns), np.int32)
    for i in range(total):
        for j in range(columns):
            narrow[i, j] = table[i, kept[j]]
    return narrow, final, first, column, steps


@kernel("int32[:, ::1](int32[:, ::1], int64, int64)")
def _longer_table(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` rows with room for more; loops, because slice assignment compiles for seconds."""
    new = np.zeros((capacity, old.shape[1]), np.int32)
    for i in range(used):
        for j in range(old.shape[1]):
            new[i, j] = old[i, j]
    return new


@kernel("int64[::1](int64[::1], int64, int64)")
def _longer(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` values with room for more."""
    new = np.zeros(capacity, np.int64)
    for i in range(used):
        new[i] = old[i]
    return new


@kernel("int64(int64[::1], int64[::1], int64, int64)")
def _slot(keys: Array, used: Array, key: Int, mask: Int) -> Int:
    """The slot of ``key`` in an open-addressing table, or the free slot where it belongs (used[slot] < 0)."""
    slot = (key * np.int64(-7046029254386353131) >> 17) & mask
    while used[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return np.int64(slot)


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64, int32[::1], int64))"
    "(int32[:, ::1], boolean[::1], int64, int32[:, ::1], boolean[::1], int64, int32[::1], int32[::1],"
    " int64, int64, int64)",
)
def product(
    delta_a: Array,
    final_a: Array,
    start_a: Int,
    delta_b: Array,
    final_b: Array,
    start_b: Int,
    class_a: Array,
    class_b: Array,
    truth: Int,
    max_states: Int,
    fuel: Int,
) -> tuple[Array, Array, Int, Array, Int]:
    """Canonical form of a boolean combination of two canonical automata.

    class_a, class_b: int32[k] map the joint classes to those of each operand. ``truth`` has bit (2·a + b) set when a
    word with these two verdicts is in the language; bit 0 must be 0. A start of -1 reports an exhausted limit.
    """
    k = len(class_a)
    nb = np.int64(len(delta_b))
    a_alone = truth & 0b0100 != 0  # a word only a accepts counts, so pairs with a dead b live on
    b_alone = truth & 0b0010 != 0
    failed = np.empty((0, 0), np.int32), np.empty(0, np.bool_), np.int64(-1), np.empty(0, np.int32)
    capacity = np.int64(64)
    table = np.zeros((capacity, k), np.int32)
    pairs = np.zeros(capacity, np.int64)
    mask = np.int64(127)
    keys = np.zeros(mask + 1, np.int64)
    used = np.full(mask + 1, -1, np.int64)
    used[_slot(keys, used, 0, mask)] = 0  # the pair (dead, dead) is state 0
    total = np.int64(1)
    first = np.int64(start_a) * nb + start_b
    if (start_a == 0 and not b_alone) or (start_b == 0 and not a_alone):
        first = np.int64(0)
    if first != 0:
        slot = _slot(keys, used, first, mask)
        keys[slot], used[slot], pairs[1] = first, 1, first
        total = np.int64(2)
    at = np.int64(1)
    steps = np.int64(0)
    while at < total:
        p, q = pairs[at] // nb, pairs[at] % nb
        steps += k
        if steps > fuel:
            return (*failed, steps)
        for c in range(k):
            s, t = delta_a[p, class_a[c]], delta_b[q, class_b[c]]
            if (s == 0 and not b_alone) or (t == 0 and not a_alone):
                continue
            key = np.int64(s) * nb + t
            slot = _slot(keys, used, key, mask)
            if used[slot] < 0:
                if total == max_states:
                    return (*failed, steps)
                if total == capacity:
                    capacity *= 2
                    table = _longer_table(table, total, capacity)
                    pairs = _longer(pairs, total, capacity)
                    mask = 2 * capacity - 1
                    keys = np.zeros(mask + 1, np.int64)
                    used = np.full(mask + 1, -1, np.int64)
                    for i in range(total):
                        where = _slot(keys, used, pairs[i], mask)
                        keys[where], used[where] = pairs[i], i
                    slot = _slot(keys, used, key, mask)
                keys[slot], used[slot], pairs[total] = key, total, key
                total += 1
            table[at, c] = used[slot]
        at += 1
    final = np.zeros(total, np.bool_)
    for i in range(1, total):
        verdict = 2 * np.int64(final_a[pairs[i] // nb]) + np.int64(final_b[pairs[i] % nb])
        final[i] = (truth >> verdict) & 1 != 0
    result, accepting, start, column, more = canonical(table[:total], final, np.int64(1 if total > 1 else 0))
    return result, accepting, start, column, steps + more


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64, int32[::1], int64))"
    "(int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], boolean[::1],"
    " int64, int64, int64, int64)",
)
def determinise(
    edge_source: Array,
    edge_label: Array,
    edge_target: Array,
    epsilon_source: Array,
    epsilon_target: Array,
    label_start: Array,
    label_classes: Array,
    starts: Array,
    final: Array,
    classes: Int,
    max_states: Int,
    fuel: Int,
    word_limit: Int,
) -> tuple[Array, Array, Int, Array, Int]:
    """Canonical form of an NFA by the subset construction (Rabin and Scott, 1959).

    Edges carry labels; label l stands for the classes ``label_classes[label_start[l] : label_start[l + 1]]``.
    ``final``: bool[NFA states]. A set of NFA states is a row of 64-bit words; states without character edges that are
    not final are left out of it. ``word_limit`` bounds the memory of all sets together. A start of -1 reports a limit.
    """
    n = np.int64(len(final))
    failed = np.empty((0, 0), np.int32), np.empty(0, np.bool_), np.int64(-1), np.empty(0, np.int32)
    # CSR of both kinds of edges.
    edge_first = np.zeros(n + 1, np.int32)
    for i in range(len(edge_source)):
        edge_first[edge_source[i] + 1] += 1
    epsilon_first = np.zeros(n + 1, np.int32)
    for i in range(len(epsilon_source)):
        epsilon_first[epsilon_source[i] + 1] += 1
    matters = np.zeros(n, np.bool_)
    for s in range(n):
        matters[s] = final[s] or edge_first[s + 1] > 0
        edge_first[s + 1] += edge_first[s]
        epsilon_first[s + 1] += epsilon_first[s]
    fill = _copy(edge_first)
    label = np.empty(len(edge_source), np.int32)
    target = np.empty(len(edge_source), np.int32)
    for i in range(len(edge_source)):
        at = fill[edge_source[i]]
        fill[edge_source[i]] += 1
        label[at], target[at] = edge_label[i], edge_target[i]
    fill = _copy(epsilon_first)
    epsilon = np.empty(len(epsilon_source), np.int32)
    for i in range(len(epsilon_source)):
        epsilon[fill[epsilon_source[i]]] = epsilon_target[i]
        fill[epsilon_source[i]] += 1

    # Epsilon closures of all states that an edge or the start leads to, as lists of the states that matter.
    steps = np.int64(n + len(edge_source))
    wanted = np.zeros(n, np.bool_)
    for s in starts:
        wanted[s] = True
    for s in target:
        wanted[s] = True
    closure_first = np.zeros(n + 1, np.int64)
    closure = np.zeros(2 * n + 16, np.int64)
    size = np.int64(0)
    stamp = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    for s in range(n):
        if wanted[s]:
            stack[0] = s
            top = 1
            stamp[s] = s
            while top > 0:
                top -= 1
                u = stack[top]
                if matters[u]:
                    if size == len(closure):
                        closure = _longer(closure, size, 2 * size)
                    closure[size] = u
                    size += 1
                for i in range(epsilon_first[u], epsilon_first[u + 1]):
                    v = epsilon[i]
                    if stamp[v] != s:
                        stamp[v] = s
                        stack[top] = v
                        top += 1
                steps += 1 + epsilon_first[u + 1] - epsilon_first[u]
            if steps > fuel:
                return (*failed, steps)
        closure_first[s + 1] = size

    words = (n + 63) // 64
    capacity = np.int64(64)
    sets = np.zeros(capacity * words, np.int64)
    hashes = np.zeros(capacity, np.int64)
    table = np.zeros((capacity, classes), np.int32)
    mask = np.int64(255)
    used = np.full(mask + 1, -1, np.int32)
    total = np.int64(1)  # the empty set, state 0, is never looked up
    nexts = np.zeros((classes + 1, words), np.uint64)  # one set being built per class; the last one for the start
    live = np.zeros(classes + 1, np.bool_)
    for s in starts:
        for i in range(closure_first[s], closure_first[s + 1]):
            u = closure[i]
            nexts[classes, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
            live[classes] = True
    at = np.int64(0)
    while at < total:
        if at > 0:
            for w in range(words):
                word = np.uint64(sets[at * words + w])
                while word != 0:
                    bit = word & (~word + np.uint64(1))
                    word ^= bit
                    # position of the single bit, by halving
                    low = np.int64(0)
                    if bit >= np.uint64(1) << np.uint64(32):
                        low += 32
                        bit >>= np.uint64(32)
                    if bit >= np.uint64(1) << np.uint64(16):
                        low += 16
                        bit >>= np.uint64(16)
                    if bit >= np.uint64(1) << np.uint64(8):
                        low += 8
                        bit >>= np.uint64(8)
                    if bit >= np.uint64(1) << np.uint64(4):
                        low += 4
                        bit >>= np.uint64(4)
                    if bit >= np.uint64(1) << np.uint64(2):
                        low += 2
                        bit >>= np.uint64(2)
                    if bit >= np.uint64(1) << np.uint64(1):
                        low += 1
                    member = w * 64 + low
                    for e in range(edge_first[member], edge_first[member + 1]):
                        lab = label[e]
                        t = target[e]
                        many = closure_first[t + 1] - closure_first[t]
                        steps += many * (label_start[lab + 1] - label_start[lab]) + 1
                        for j in range(label_start[lab], label_start[lab + 1]):
                            c = label_classes[j]
                            live[c] |= many > 0
                            for i in range(closure_first[t], closure_first[t + 1]):
                                u = closure[i]
                                nexts[c, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        for c in range(classes + 1):
            if not live[c]:
                continue
            live[c] = False
            key = np.uint64(1469598103934665603)
            for w in range(words):
                key = (key ^ nexts[c, w]) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
            code = np.int64(key)
            steps += words
            slot = code & mask
            while used[slot] >= 0:
                other = np.int64(used[slot])
                if hashes[other] == code:
                    same = True
                    for w in range(words):
                        if sets[other * words + w] != np.int64(nexts[c, w]):
                            same = False
                            break
                    if same:
                        break
                slot = (slot + 1) & mask
            if used[slot] < 0:
                if total == max_states or total * words > word_limit:
                    return (*failed, steps)
                if total == capacity:
                    capacity *= 2
                    sets = _longer(sets, total * words, capacity * words)
                    table = _longer_table(table, total, capacity)
                    hashes = _longer(hashes, total, capacity)
                    mask = 4 * capacity - 1
                    used = np.full(mask + 1, -1, np.int32)
                    for i in range(1, total):
                        slot = hashes[i] & mask
                        while used[slot] >= 0:
                            slot = (slot + 1) & mask
                        used[slot] = i
                    slot = code & mask
                    while used[slot] >= 0:
                        slot = (slot + 1) & mask
                used[slot] = total
                hashes[total] = code
                for w in range(words):
                    sets[total * words + w] = np.int64(nexts[c, w])
                total += 1
            if c < classes:
                table[at, c] = used[slot]
            for w in range(words):
                nexts[c, w] = 0
        steps += classes
        if steps > fuel:
            return (*failed, steps)
        at += 1
    accepting = np.zeros(total, np.bool_)
    for i in range(1, total):
        for w in range(words):
            word = np.uint64(sets[i * words + w])
            s = w * 64
            while word != 0 and not accepting[i]:
                if word & np.uint64(1) != 0 and final[s]:
                    accepting[i] = True
                word >>= np.uint64(1)
                s += 1
    result, finals, start, column, more = canonical(table[:total], accepting, np.int64(1 if total > 1 else 0))
    return result, finals, start, column, steps + more


@kernel("Tuple((int32[:, ::1], boolean[::1]))(int32[::1], int64[::1], int64)")
def trie(classes: Array, ends: Array, width: Int) -> tuple[Array, Array]:
    """The tree of sorted words, word i being ``classes[ends[i-1] : ends[i]]``: state 0 is dead, 1 the root."""
    count = len(ends)
    longest = np.int64(0)
    nodes = np.int64(2)
    begin = np.int64(0)
    before = np.int64(0)
    shared = np.zeros(count, np.int32)
    for i in range(count):
        length = ends[i] - begin
        longest = max(longest, length)
        if i > 0:
            limit = min(length, begin - before)
            j = 0
            while j < limit and classes[before + j] == classes[begin + j]:
                j += 1
            shared[i] = j
        nodes += length - shared[i]
        before = begin
        begin = ends[i]
    table = np.zeros((nodes, width), np.int32)
    final = np.zeros(nodes, np.bool_)
    path = np.empty(longest + 1, np.int32)
    path[0] = 1
    total = 2
    begin = np.int64(0)
    for i in range(count):
        length = ends[i] - begin
        for j in range(shared[i], length):
            table[path[j], classes[begin + j]] = total
            path[j + 1] = total
            total += 1
        final[path[length]] = True
        begin = ends[i]
    return table, final
