"""Rules and loop bodies that match the empty string.

A call of such a rule gets a bypass (`closures` steps over it). A counted loop over such a body counts only rounds that
consume something: its minimum becomes 0, which is the same language, and an epsilon leads round it; that may make more
nodes nullable, so both are repeated (usually once).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32
from dotllm.automata.finish.links import group_by, mark, mark_calls
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER
from dotllm.jit import B1, I1, I2, inner_kernel


@inner_kernel(nb.void(I1, I1, I1, I1, I1, I1, I1, I1, I1, B1))
def find_nullable(
    a: Int32, b: Int32, back_start: Int32, back: Int32, by_return_start: Int32, by_return: Int32, by_rule_start: Int32,
    by_rule: Int32, todo: Int32, nullable: Bool,
) -> None:  # fmt: skip
    """Mark the nodes that reach RETURN (node 0) of their own rule without consuming anything."""
    nullable[:] = False
    nullable[0] = True
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        v = todo[top]
        top = mark(v, back_start, back, nullable, todo, top)
        top = mark_calls(v, a, b, by_return_start, by_return, by_rule_start, by_rule, nullable, todo, top)


@inner_kernel(nb.int64(I1, I1, I1, I2, I1, I1, nb.int64, I1, I1, I1, I1, I1, I1, I1, I1, B1))
def bypass_nullable(
    kind: Int32, a: Int32, b: Int32, loops: Int32, eps_source: Int32, eps_target: Int32, n_eps: int,
    by_return_start: Int32, by_return: Int32, by_rule_start: Int32, by_rule: Int32,
    forward_start: Int32, forward: Int32, back_start: Int32, back: Int32, nullable: Bool,
) -> int:  # fmt: skip
    """Find the nullable nodes; add an epsilon round each counted loop with a nullable body. Returns how many epsilons
    there are; forward, back: all of them by source and by target."""
    n, n_loops = kind.shape[0], loops.shape[0]
    bypassed = np.zeros(n_loops, nb.boolean)
    enter_of = np.full(n_loops, -1, np.int32)
    for i in range(n):
        if kind[i] == N_ENTER:
            enter_of[a[i]] = i
    todo = np.empty(n + 1, np.int32)
    seen = np.zeros(n, np.int32)
    stamp = 0
    while True:
        group_by(n, eps_source, eps_target, n_eps, forward_start, forward)
        group_by(n, eps_target, eps_source, n_eps, back_start, back)
        find_nullable(a, b, back_start, back, by_return_start, by_return, by_rule_start, by_rule, todo, nullable)
        changed = False
        for loop in range(n_loops):
            if bypassed[loop] or loops[loop, 3] < -1 or loops[loop, 2] < 0:  # (neither has empty rounds)
                continue
            stamp += 1
            todo[0] = loops[loop, 0]
            seen[loops[loop, 0]] = stamp
            top = 1
            found = False
            while top > 0 and not found:
                top -= 1
                v = todo[top]
                if kind[v] == N_END and a[v] == loop:
                    found = True
                for i in range(forward_start[v], forward_start[v + 1]):
                    if seen[forward[i]] != stamp:
                        seen[forward[i]] = stamp
                        todo[top] = forward[i]
                        top += 1
                if kind[v] == N_CALL and nullable[a[v]] and seen[b[v]] != stamp:
                    seen[b[v]] = stamp
                    todo[top] = b[v]
                    top += 1
            if found:
                bypassed[loop] = True
                loops[loop, 2] = 0
                eps_source[n_eps], eps_target[n_eps] = enter_of[loop], loops[loop, 1]
                n_eps += 1
                changed = True
        if not changed:
            return n_eps
