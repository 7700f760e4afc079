"""The kernels of the DFA algebra. (No kernel calls another one, because it would be compiled again with its caller.)

A table is int32[states, classes], total. `canonical` brings every result into this canonical form:

* state 0 is dead (not accepting, all transitions to itself), whether reachable or not;
* the start is state 1, or 0 when the language is empty;
* the other states are reachable, live, pairwise different, and numbered by breadth-first search in class order;
* no two columns are alike.

`product` and `determinise` return (table, accepting, steps) of an automaton that is yet to be minimised (`equivalence`,
then `canonical`), with the same dead state and start. They can explode, so they take ``max_states`` and ``fuel``: a
result with more steps than ``fuel`` is void, because it hit a limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.jit import inner_kernel, kernel

# Growing arrays inside kernels: a copy with room for more, because Numba's arrays cannot be resized in place.

Array = NDArray[Any]
Int = Any  # an int64 inside a kernel, an int outside


@inner_kernel("int32[:, ::1](int32[:, ::1], int64, int64)")
def longer_table(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` rows with room for more."""
    new = allocate.zero_int_rows(capacity, old.shape[1])
    for i in range(used):
        for j in range(old.shape[1]):
            new[i, j] = old[i, j]
    return new


@inner_kernel("int64[::1](int64[::1], int64, int64)")
def longer(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` values with room for more."""
    new = allocate.zero_longs(capacity)
    for i in range(used):
        new[i] = old[i]
    return new


# The subset construction (Rabin and Scott, 1959): makes a nondeterministic automaton deterministic.
#
# A set of NFA states is a row of 64-bit words. States that neither have character edges nor accept do not matter and
# are left out, so that fewer sets are different.


@inner_kernel("Tuple((int32[::1], int32[::1]))(int32[::1], int64)")
def _grouped(sources: Array, n: Int) -> tuple[Array, Array]:
    """(first, order): the edges ``order[first[s] : first[s + 1]]`` leave state s; a counting sort."""
    first = allocate.zero_ints(n + 1)
    for source in sources:
        first[source + 1] += 1
    for s in range(n):
        first[s + 1] += first[s]
    fill = allocate.copied_ints(first)
    order = allocate.ints(len(sources))
    for i in range(len(sources)):
        order[fill[sources[i]]] = i
        fill[sources[i]] += 1
    return first, order


@inner_kernel(
    "Tuple((int64[::1], int64[::1], int64))"
    "(int32[::1], int32[::1], boolean[::1], int32[::1], int32[::1], int32[::1], int64)"
)
def _closures(
    edge_target: Array,
    starts: Array,
    matters: Array,
    epsilon_first: Array,
    epsilon_order: Array,
    epsilon_target: Array,
    fuel: Int,
) -> tuple[Array, Array, Int]:
    """(first, states, steps): ``states[first[s] : first[s + 1]]`` are the states of the epsilon closure of s that
    matter.

    Only start states and targets of edges have a closure. More steps than ``fuel`` mean that the search was given up.
    """
    n = len(matters)
    wanted = allocate.zero_flags(n)
    for s in starts:
        wanted[s] = True
    for s in edge_target:
        wanted[s] = True
    first = allocate.zero_longs(n + 1)
    states = allocate.zero_longs(2 * n + 16)
    size = np.int64(0)
    steps = np.int64(n)
    stamp = allocate.filled_ints(n, -1)
    stack = allocate.ints(n)
    for s in range(n):
        if wanted[s] and steps <= fuel:
            stack[0] = s
            top = 1
            stamp[s] = s
            while top > 0:
                top -= 1
                u = stack[top]
                if matters[u]:
                    if size == len(states):
                        states = longer(states, size, 2 * size)
                    states[size] = u
                    size += 1
                for i in range(epsilon_first[u], epsilon_first[u + 1]):
                    v = epsilon_target[epsilon_order[i]]
                    if stamp[v] != s:
                        stamp[v] = s
                        stack[top] = v
                        top += 1
                steps += 1 + epsilon_first[u + 1] - epsilon_first[u]
        first[s + 1] = size
    return first, states, steps


@inner_kernel("int64(uint64)", inlined=True)
def _lowest_bit(word: Int) -> Int:
    """The position of the lowest bit of a word that is not 0."""
    position = np.int64(0)
    for shift in (32, 16, 8, 4, 2, 1):
        if word & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1)) == 0:
            word >>= np.uint64(shift)
            position += shift
    return position


@inner_kernel("int64(uint64[:, ::1], int64)", inlined=True)
def _hash(sets: Array, row: Int) -> Int:
    key = np.uint64(1469598103934665603)
    for w in range(sets.shape[1]):
        key = (key ^ sets[row, w]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return np.int64(key)


@inner_kernel("int64(int32[::1], int64[::1], int64[::1], uint64[:, ::1], int64, int64)")
def _find(slots: Array, hashes: Array, sets: Array, candidates: Array, row: Int, code: Int) -> Int:
    """The slot of the set ``candidates[row]``, whose hash is ``code``, or the free slot where it belongs."""
    words = candidates.shape[1]
    mask = len(slots) - 1
    slot = code & mask
    while slots[slot] >= 0:
        other = np.int64(slots[slot])
        if hashes[other] == code:
            same = True
            for w in range(words):
                if sets[other * words + w] != np.int64(candidates[row, w]):
                    same = False
                    break
            if same:
                break
        slot = (slot + 1) & mask
    return np.int64(slot)


@inner_kernel("int32[::1](int64[::1], int64)")
def _rehashed(hashes: Array, total: Int) -> Array:
    """A hash table of the sets 1..total - 1, with four slots for each set that ``hashes`` has room for."""
    mask = 4 * len(hashes) - 1
    slots = allocate.filled_ints(mask + 1, -1)
    for i in range(1, total):
        slot = hashes[i] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = i
    return slots


@inner_kernel(
    "UniTuple(int32[::1], 3)(UniTuple(int32[::1], 3), UniTuple(int32[::1], 2), int64[::1], int64[::1], int64)"
)
def _moves(
    edges: tuple[Array, Array, Array], labels: tuple[Array, Array], closure_first: Array, closure: Array, many: Int
) -> tuple[Array, Array, Array]:
    """(source, class, target) of all ``many`` moves: an edge, and then any number of epsilons."""
    edge_source, edge_label, edge_target = edges
    label_start, label_classes = labels
    source, move_class, target = allocate.ints(many), allocate.ints(many), allocate.ints(many)
    size = np.int64(0)
    for e in range(len(edge_source)):
        t, label = edge_target[e], edge_label[e]
        for j in range(label_start[label], label_start[label + 1]):
            for i in range(closure_first[t], closure_first[t + 1]):
                source[size], move_class[size], target[size] = edge_source[e], label_classes[j], closure[i]
                size += 1
    return source, move_class, target


@inner_kernel("uint64[:, ::1](uint64[:, ::1])")
def _without_equals(simulators: Array) -> Array:
    """`dominated_states`, given the states that simulate each state. Of states that simulate each other, the first
    dominates."""
    n, words = simulators.shape
    dominated = allocate.zero_word_rows(n, words)
    for p in range(n):
        for q in range(n):
            simulates = p != q and simulators[p, q >> 6] >> np.uint64(q & 63) & np.uint64(1)
            if simulates and (q < p or not simulators[q, p >> 6] >> np.uint64(p & 63) & np.uint64(1)):
                dominated[q, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
    return dominated


@kernel(
    "Tuple((uint64[:, ::1], int64))"
    "(UniTuple(int32[::1], 3), UniTuple(int32[::1], 2), UniTuple(int32[::1], 2), boolean[::1], int64, int64)"
)
def dominated_states(
    edges: tuple[Array, Array, Array],
    epsilons: tuple[Array, Array],
    labels: tuple[Array, Array],
    final: Array,
    classes: Int,
    fuel: Int,
) -> tuple[Array, Int]:
    """(dominated, steps): ``dominated[q]`` are the states, as bits, whose texts q accepts, too: a set with q does not
    need them.

    That is the largest direct simulation (R. Milner, 1971): q accepts if p does, and whatever character leads from p to
    some p', leads from q to a q' that simulates p'. In the automaton of ``.{1,50}`` every count dominates the larger
    ones. Arguments as of `determinise`; more steps than ``fuel`` mean that the search was given up.
    """
    edge_source, edge_label, edge_target = edges
    label_start, _label_classes = labels
    n = len(final)
    words = (n + 63) // 64
    epsilon_first, epsilon_order = _grouped(epsilons[0], n)
    matters = allocate.zero_flags(n)
    for s in range(n):
        matters[s] = final[s]
    for s in edge_source:
        matters[s] = True
    closure_first, closure, steps = _closures(
        edge_target, edge_target[:0], matters, epsilon_first, epsilon_order, epsilons[1], fuel
    )
    many = np.int64(0)
    for e in range(len(edge_source)):
        t, label = edge_target[e], edge_label[e]
        many += (closure_first[t + 1] - closure_first[t]) * (label_start[label + 1] - label_start[label])
    steps += 8 * many + n * (n + classes)
    simulators = allocate.zero_word_rows(n, words)
    if steps > fuel:
        return simulators, steps
    source, move_class, target = _moves(edges, labels, closure_first, closure, many)
    read = allocate.ints(many)  # the place where a move ends: its class and its target
    for i in range(many):
        read[i] = move_class[i] * n + target[i]
    leaving, by_source = _grouped(source, n)
    into, by_target = _grouped(read, n * classes)
    for p in range(n):
        for q in range(n):
            if matters[p] and matters[q] and (final[q] or not final[p]):
                simulators[p, q >> 6] |= np.uint64(1) << np.uint64(q & 63)
    able = allocate.zero_word_rows(1, words)
    is_open = allocate.zero_flags(n)
    for p in range(n):
        is_open[p] = matters[p]
    changed = True
    while changed and steps <= fuel:
        changed = False
        for p in range(n - 1, -1, -1):
            if not is_open[p]:
                continue
            is_open[p] = False
            shrunk = False
            for i in range(leaving[p], leaving[p + 1]):
                if steps > fuel:
                    break
                move = by_source[i]
                for w in range(words):
                    able[0, w] = 0
                for w in range(words):
                    word = simulators[target[move], w]
                    while word != 0:
                        place = np.int64(move_class[move]) * n + w * 64 + _lowest_bit(word)
                        word &= word - np.uint64(1)
                        steps += 1 + into[place + 1] - into[place]
                        for k in range(into[place], into[place + 1]):
                            able_state = np.int64(source[by_target[k]])
                            able[0, able_state >> 6] |= np.uint64(1) << np.uint64(able_state & 63)
                for w in range(words):
                    shrunk |= (simulators[p, w] & ~able[0, w]) != 0
                    simulators[p, w] &= able[0, w]
                steps += 3 * words
            if shrunk:
                changed = True
                for c in range(classes):
                    steps += 1 + into[c * n + p + 1] - into[c * n + p]
                    for k in range(into[c * n + p], into[c * n + p + 1]):
                        is_open[source[by_target[k]]] = True
    return _without_equals(simulators), steps


@inner_kernel("int64(uint64[:, ::1], int64, uint64[:, ::1])")
def _pruned(sets: Array, row: Int, dominated: Array) -> Int:
    """Remove from a set the states that others of it dominate; the steps."""
    words = sets.shape[1]
    steps = np.int64(0)
    for w in range(words):
        word = sets[row, w]
        while word != 0:
            s = w * 64 + _lowest_bit(word)
            word &= word - np.uint64(1)
            for v in range(words):
                sets[row, v] &= ~dominated[s, v]
            steps += words
    return steps


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64))"
    "(UniTuple(int32[::1], 3), UniTuple(int32[::1], 2), UniTuple(int32[::1], 2), int32[::1], boolean[::1],"
    " uint64[:, ::1], int64, int64, int64, int64)"
)
def determinise(
    edges: tuple[Array, Array, Array],
    epsilons: tuple[Array, Array],
    labels: tuple[Array, Array],
    starts: Array,
    final: Array,
    dominated: Array,
    classes: Int,
    max_states: Int,
    fuel: Int,
    max_words: Int,
) -> tuple[Array, Array, Int]:
    """The deterministic automaton of an NFA, not yet minimal; the module docstring describes the result.

    edges: source, label, target; epsilons: source, target; labels: CSR of the classes that each label stands for (see
    `NfaArrays`). final: bool[NFA states]. dominated: of `dominated_states`, or without rows. max_words bounds the
    memory of all sets together.
    """
    edge_source, edge_label, edge_target = edges
    epsilon_source, epsilon_target = epsilons
    label_start, label_classes = labels
    n = len(final)
    first, order = _grouped(edge_source, n)
    epsilon_first, epsilon_order = _grouped(epsilon_source, n)
    matters = allocate.zero_flags(n)
    for s in range(n):
        matters[s] = final[s] or first[s + 1] > first[s]
    closure_first, closure, steps = _closures(
        edge_target, starts, matters, epsilon_first, epsilon_order, epsilon_target, fuel
    )
    words = (n + 63) // 64
    capacity = np.int64(64)
    sets = allocate.zero_longs(capacity * words)
    hashes = allocate.zero_longs(capacity)
    table = allocate.zero_int_rows(capacity, classes)
    slots = _rehashed(hashes, 1)
    total = np.int64(1)  # the empty set, state 0, is never looked up
    nexts = allocate.zero_word_rows(classes + 1, words)  # the set being built for each class; then the start
    live = allocate.zero_flags(classes + 1)
    for s in starts:
        for i in range(closure_first[s], closure_first[s + 1]):
            u = closure[i]
            nexts[classes, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
            live[classes] = True
    at = np.int64(0)
    while at < total and steps <= fuel:
        for w in range(words):
            word = np.uint64(sets[at * words + w])
            while word != 0:
                s = w * 64 + _lowest_bit(word)
                word &= word - np.uint64(1)
                for e in range(first[s], first[s + 1]):
                    edge = order[e]
                    label, t = edge_label[edge], edge_target[edge]
                    low, high = closure_first[t], closure_first[t + 1]
                    steps += (high - low) * (label_start[label + 1] - label_start[label]) + 1
                    for j in range(label_start[label], label_start[label + 1]):
                        c = label_classes[j]
                        live[c] |= high > low
                        for i in range(low, high):
                            u = closure[i]
                            nexts[c, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        for c in range(classes + 1):
            if not live[c]:
                continue
            live[c] = False
            if len(dominated):
                steps += _pruned(nexts, c, dominated)
            code = _hash(nexts, c)
            slot = _find(slots, hashes, sets, nexts, c, code)
            if slots[slot] < 0:
                if total == max_states or total * words > max_words:
                    steps = fuel + 1
                    break
                if total == capacity:
                    capacity *= 2
                    sets = longer(sets, total * words, capacity * words)
                    table = longer_table(table, total, capacity)
                    hashes = longer(hashes, total, capacity)
                    slots = _rehashed(hashes, total)
                    slot = _find(slots, hashes, sets, nexts, c, code)
                slots[slot] = total
                hashes[total] = code
                for w in range(words):
                    sets[total * words + w] = np.int64(nexts[c, w])
                total += 1
            if c < classes:
                table[at, c] = slots[slot]
            for w in range(words):
                nexts[c, w] = 0
        steps += (classes + 1) * words
        at += 1
    accepting = allocate.zero_flags(total)
    for i in range(1, total):
        for w in range(words):
            word = np.uint64(sets[i * words + w])
            while word != 0 and not accepting[i]:
                accepting[i] = final[w * 64 + _lowest_bit(word)]
                word &= word - np.uint64(1)
    return table[:total], accepting, steps


# Minimises an automaton (J. Hopcroft, 1971) and numbers its states canonically.


@inner_kernel("Tuple((int32[::1], int32[::1]))(int32[:, ::1])")
def _predecessors(delta: Array) -> tuple[Array, Array]:
    """(first, source): the states source[first[c * n + t] : first[c * n + t + 1]] go to t under class c."""
    n, k = delta.shape
    first = allocate.zero_ints(n * k + 1)
    for s in range(n):
        for c in range(k):
            first[c * n + delta[s, c] + 1] += 1
    for i in range(n * k):
        first[i + 1] += first[i]
    fill = allocate.copied_ints(first)
    source = allocate.ints(n * k)
    for s in range(n):
        for c in range(k):
            slot = c * n + delta[s, c]
            source[fill[slot]] = s
            fill[slot] += 1
    return first, source


@kernel("Tuple((int32[::1], int64))(int32[:, ::1], boolean[::1])")
def equivalence(delta: Array, accepting: Array) -> tuple[Array, Int]:
    """The block of each state in the coarsest congruence, and the steps taken: Hopcroft (1971), O(n · k · log n).

    Blocks are slices of ``order``; states of a block that reach the splitter are swapped to its front. The new block is
    always the smaller half, which is also the half that must be examined again, so a (block, class) pair is pushed
    exactly once.
    """
    n, k = delta.shape
    block = allocate.zero_ints(n)
    accepted = 0
    for s in range(n):
        if accepting[s]:
            accepted += 1
    steps = np.int64(n * k)
    if accepted == 0 or accepted == n:
        return block, steps

    first, source = _predecessors(delta)
    order = allocate.ints(n)
    place = allocate.ints(n)
    begin = allocate.zero_ints(n + 1)
    size = allocate.zero_ints(n)
    marked = allocate.zero_ints(n)
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
    work_block = allocate.ints(n * k + k)
    work_class = allocate.ints(n * k + k)
    todo = 0
    for c in range(k):
        work_block[todo], work_class[todo] = 1, c
        todo += 1

    sources = allocate.ints(n)
    touched = allocate.ints(n)
    while todo > 0:
        todo -= 1
        b, c = work_block[todo], work_class[todo]
        count = 0
        for i in range(begin[b], begin[b] + size[b]):
            slot = c * n + order[i]
            for j in range(first[slot], first[slot + 1]):
                sources[count] = source[j]
                count += 1
        steps += count + size[b]
        hits = 0
        for i in range(count):
            s = sources[i]
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
                work_block[todo], work_class[todo] = y, d
                todo += 1
    return block, steps


@kernel("Tuple((int32[:, ::1], boolean[::1], int64, int32[::1]))(int32[:, ::1], boolean[::1], int64, int32[::1])")
def canonical(delta: Array, accepting: Array, start: Int, block: Array) -> tuple[Array, Array, Int, Array]:
    """(table, accepting, start, new class of each class): the canonical form of a total automaton.

    ``block``: int32[states], the result of `equivalence`.
    """
    n, k = delta.shape
    # A representative per block; the dead block is the one that rejects and maps to itself under every class.
    sample = allocate.filled_ints(n, -1)
    for s in range(n):
        if sample[block[s]] < 0:
            sample[block[s]] = s
    number = allocate.filled_ints(n, -1)
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
    queue = allocate.ints(n + 1)
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
    table = allocate.zero_int_rows(total, k)
    final = allocate.zero_flags(total)
    mixed = allocate.zero_words(k)  # a hash per column
    for i in range(1, total):
        s = sample[queue[i]]
        final[i] = accepting[s]
        for c in range(k):
            t = number[block[delta[s, c]]]
            table[i, c] = t
            mixed[c] = (mixed[c] ^ np.uint64(t)) * np.uint64(0x9E3779B97F4A7C15)
            mixed[c] ^= mixed[c] >> np.uint64(29)
    column = allocate.ints(k)
    kept = allocate.ints(k)
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
        if same < 0:
            same = columns
            kept[columns] = c
            columns += 1
        column[c] = same
    if columns == k:
        return table, final, first, column
    narrow = allocate.int_rows(total, columns)
    for i in range(total):
        for j in range(columns):
            narrow[i, j] = table[i, kept[j]]
    return narrow, final, first, column


# Boolean combinations: the product of two automata, whose states are pairs of their states.

_MIX = np.int64(-7046029254386353131)  # multiplier for the slots of the hash table of pairs


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64))"
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
) -> tuple[Array, Array, Int]:
    """A boolean combination of two canonical automata, not yet minimal; the module docstring describes the result.

    class_a, class_b: int32[k] map the joint classes to those of each operand. ``truth`` has bit (2·a + b) set if a
    word with these two verdicts is in the language; bit 0 must be 0.
    """
    k = len(class_a)
    nb = np.int64(len(delta_b))
    a_alone = truth & 0b0100 != 0  # a word that only a accepts counts, so pairs with a dead b are kept
    b_alone = truth & 0b0010 != 0
    capacity = np.int64(64)
    table = allocate.zero_int_rows(capacity, k)
    pairs = allocate.zero_longs(capacity)
    mask = np.int64(127)
    keys = allocate.zero_longs(mask + 1)
    used = allocate.filled_longs(mask + 1, -1)
    used[0] = 0  # the pair (dead, dead) is state 0
    total = np.int64(1)
    first = np.int64(start_a) * nb + start_b
    if (start_a == 0 and not b_alone) or (start_b == 0 and not a_alone):
        first = np.int64(0)
    if first != 0:
        slot = (first * _MIX >> 17) & mask
        if used[slot] >= 0:
            slot = (slot + 1) & mask
        keys[slot], used[slot], pairs[1] = first, 1, first
        total = np.int64(2)
    at = np.int64(1)
    steps = np.int64(0)
    while at < total and steps <= fuel:
        p, q = pairs[at] // nb, pairs[at] % nb
        steps += k
        last_key, last = np.int64(0), np.int64(0)  # neighbours often lead to the same pair
        for c in range(k):
            s, t = delta_a[p, class_a[c]], delta_b[q, class_b[c]]
            if (s == 0 and not b_alone) or (t == 0 and not a_alone):
                continue
            key = np.int64(s) * nb + t
            if key == last_key:
                table[at, c] = last
                continue
            # The hash table is searched inline: passing arrays to a function takes longer than the search.
            slot = (key * _MIX >> 17) & mask
            while used[slot] >= 0 and keys[slot] != key:
                slot = (slot + 1) & mask
            if used[slot] < 0:
                if total == max_states:
                    steps = fuel + 1
                    break
                if total == capacity:
                    capacity *= 2
                    table = longer_table(table, total, capacity)
                    pairs = longer(pairs, total, capacity)
                    mask = 2 * capacity - 1
                    keys = allocate.zero_longs(mask + 1)
                    used = allocate.filled_longs(mask + 1, -1)
                    for i in range(total):
                        where = (pairs[i] * _MIX >> 17) & mask
                        while used[where] >= 0:
                            where = (where + 1) & mask
                        keys[where], used[where] = pairs[i], i
                    slot = (key * _MIX >> 17) & mask
                    while used[slot] >= 0:
                        slot = (slot + 1) & mask
                keys[slot], used[slot], pairs[total] = key, total, key
                total += 1
            last_key, last = key, used[slot]
            table[at, c] = last
        at += 1
    final = allocate.zero_flags(total)
    for i in range(1, total):
        verdict = 2 * np.int64(final_a[pairs[i] // nb]) + np.int64(final_b[pairs[i] % nb])
        final[i] = (truth >> verdict) & 1 != 0
    return table[:total], final, steps


# Finite languages: builds the prefix tree of sorted words.


@kernel("Tuple((int32[:, ::1], boolean[::1]))(int32[::1], int64[::1], int64)")
def trie(classes: Array, ends: Array, width: Int) -> tuple[Array, Array]:
    """The prefix tree of sorted words; word i is ``classes[ends[i-1] : ends[i]]``. State 0 is dead, 1 is the root."""
    count = len(ends)
    longest = np.int64(0)
    nodes = np.int64(2)
    begin = np.int64(0)
    before = np.int64(0)
    shared = allocate.zero_ints(count)
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
    table = allocate.zero_int_rows(nodes, width)
    final = allocate.zero_flags(nodes)
    path = allocate.ints(longest + 1)
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


__all__ = ["canonical", "determinise", "equivalence", "product", "trie"]
