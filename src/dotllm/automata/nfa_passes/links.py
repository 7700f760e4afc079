"""What all passes share: links between nodes grouped by one of their ends."""

from __future__ import annotations

import numba as nb

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import N_CALL
from dotllm.jit import B1, I1, inner_kernel


@inner_kernel(nb.void(nb.int64, I1, I1, nb.int64, I1, I1))
def group_by(n: int, keys: Int32, values: Int32, m: int, starts: Int32, out: Int32) -> None:
    """CSR: values[i] grouped by keys[i] (stable counting sort). starts has n+1 entries."""
    starts[: n + 1] = 0
    for i in range(m):
        starts[keys[i]] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    for i in range(m - 1, -1, -1):  # backwards: starts[k], the end of group k now, becomes its start
        starts[keys[i]] -= 1
        out[starts[keys[i]]] = values[i]


@inner_kernel("Tuple((int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))(int32[::1], int32[::1], int32[::1])")
def group_calls(kind: Int32, a: Int32, b: Int32) -> tuple[Int32, Int32, Int32, Int32, Int32]:
    """CALL nodes; grouped by the node they return to (starts, nodes); grouped by the start of their rule."""
    n = kind.shape[0]
    calls = 0
    for i in range(n):
        if kind[i] == N_CALL:
            calls += 1
    nodes, returns, rules = allocate.ints(calls), allocate.ints(calls), allocate.ints(calls)
    calls = 0
    for i in range(n):
        if kind[i] == N_CALL:
            nodes[calls], returns[calls], rules[calls] = i, b[i], a[i]
            calls += 1
    by_return_start, by_return = allocate.ints(n + 1), allocate.ints(calls)
    by_rule_start, by_rule = allocate.ints(n + 1), allocate.ints(calls)
    group_by(n, returns, nodes, calls, by_return_start, by_return)
    group_by(n, rules, nodes, calls, by_rule_start, by_rule)
    return nodes, by_return_start, by_return, by_rule_start, by_rule


@inner_kernel(nb.int64(nb.int64, I1, I1, B1, I1, nb.int64))
def mark(node: int, starts: Int32, nodes: Int32, marked: Bool, todo: Int32, top: int) -> int:
    """Mark what is grouped under ``node`` and put it on the stack ``todo``; returns its new height."""
    for i in range(starts[node], starts[node + 1]):
        found = nodes[i]
        if not marked[found]:
            marked[found] = True
            todo[top] = found
            top += 1
    return top


@inner_kernel(nb.int64(nb.int64, I1, I1, I1, I1, I1, I1, B1, I1, nb.int64))
def mark_calls(
    node: int, a: Int32, b: Int32, by_return_start: Int32, by_return: Int32, by_rule_start: Int32, by_rule: Int32,
    marked: Bool, todo: Int32, top: int,
) -> int:  # fmt: skip
    """`mark` for the calls that return to ``node`` or whose rule starts there, if their other end is marked too."""
    for i in range(by_return_start[node], by_return_start[node + 1]):
        call = by_return[i]
        if not marked[call] and marked[a[call]]:
            marked[call] = True
            todo[top] = call
            top += 1
    for i in range(by_rule_start[node], by_rule_start[node + 1]):
        call = by_rule[i]
        if not marked[call] and marked[b[call]]:
            marked[call] = True
            todo[top] = call
            top += 1
    return top
