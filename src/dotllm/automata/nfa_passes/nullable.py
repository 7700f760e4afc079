"""Rules that match the empty string: a call of one gets a bypass (`closures` steps over it).

No counted loop has a body that may be empty: `grammar.transform.prepare` sees to that, and dropping bytes that no token
holds makes nothing empty.
"""

from __future__ import annotations

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.nfa_passes.links import mark, mark_calls
from dotllm.jit import B1, I1, inner_kernel


@inner_kernel(B1(I1, I1, I1, I1, I1, I1, I1, I1))
def find_nullable(
    a: Int32, b: Int32, back_start: Int32, back: Int32, by_return_start: Int32, by_return: Int32, by_rule_start: Int32,
    by_rule: Int32,
) -> Bool:  # fmt: skip
    """bool [nodes]: those that reach RETURN (node 0) of their own rule without consuming anything.

    back: the sources of the epsilons to each node, as CSR; by_return, by_rule: see `group_calls`.
    """
    n = a.shape[0]
    nullable = allocate.zero_flags(n)
    todo = allocate.ints(n + 1)
    nullable[0] = True
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        v = todo[top]
        top = mark(v, back_start, back, nullable, todo, top)
        top = mark_calls(v, a, b, by_return_start, by_return, by_rule_start, by_rule, nullable, todo, top)
    return nullable
