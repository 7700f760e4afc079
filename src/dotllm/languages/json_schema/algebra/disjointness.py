"""Finds disjoint nodes by their types and discriminators; ``oneOf`` builds on this.

The answer "not disjoint" may mean "not known"; then ``oneOf`` excludes the other branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from dotllm.languages.json_schema.algebra.algebra import Algebra, Loop
from dotllm.languages.json_schema.algebra.normal_form import (
    FALSE,
    NO_NUMBER,
    NO_STRING,
    TRUE,
    ArrayConstraint,
    Node,
    NormalForm,
    ObjectConstraint,
    item_of,
    value_of,
)

DISJOINT_DEPTH = 3
FEW_BRANCHES = 8
"""Fewer branches than this are compared pair by pair, without looking for a discriminator."""


def one_of(algebra: Algebra, nodes: Sequence[Node], excluded: Sequence[Node] | None = None) -> Node:
    """The values of exactly one of ``nodes``. ``excluded``: what to exclude for each, if not the node itself."""
    excluded = nodes if excluded is None else excluded
    branches: list[Node] = []
    overlapping: list[list[Node]] = [[] for _ in nodes]
    for i, j in _pairs(algebra, nodes):
        if nodes[i] != FALSE and nodes[j] != FALSE and not are_disjoint(algebra, nodes[i], nodes[j]):
            overlapping[i].append(excluded[j])
            overlapping[j].append(excluded[i])
    for node, others in zip(nodes, overlapping, strict=True):
        branches.append(algebra.all_of([node, *(algebra.complement(other) for other in others)]))
    return algebra.any_of(branches)


def _pairs(algebra: Algebra, nodes: Sequence[Node]) -> Iterable[tuple[int, int]]:
    """The pairs of ``nodes`` that may have a value in common, in order; each i < j.

    If a property tells objects apart, only objects that share one of its values are compared: n branches with one value
    each take n steps.
    """
    names = _discriminators(algebra, nodes) if len(nodes) >= FEW_BRANCHES else {}
    sharing: dict[str, list[int]] = {}
    told_apart = [False] * len(nodes)
    for values_of in names.values():
        if len(values_of) > sum(told_apart):
            sharing = {}
            told_apart = [i in values_of for i in range(len(nodes))]
            for i, values in values_of.items():
                for value in values:
                    sharing.setdefault(value, []).append(i)
    pairs = {pair for together in sharing.values() if len(together) > 1 for pair in combinations(together, 2)}
    others = [i for i, told in enumerate(told_apart) if not told]
    pairs.update((min(i, j), max(i, j)) for i in others for j in range(len(nodes)) if i != j)
    return sorted(pairs)


def _discriminators(algebra: Algebra, nodes: Sequence[Node]) -> dict[str, dict[int, frozenset[str]]]:
    """For each property that some of ``nodes`` require and limit to listed strings: these strings, by node number."""
    result: dict[str, dict[int, frozenset[str]]] = {}
    for i, node in enumerate(nodes):
        try:
            form = algebra.form(node)
        except Loop:
            continue
        if form.constants or form.arrays or form.number is not NO_NUMBER or form.string is not NO_STRING:
            continue
        required = frozenset.intersection(*(constraint.required for constraint in form.objects)) if form.objects else ()
        algebra.spend(1 + len(required))
        for name in required:
            lists = [algebra.listed(value_of(constraint, name)) for constraint in form.objects]
            if None not in lists:
                result.setdefault(name, {})[i] = frozenset().union(*(values for values in lists if values is not None))
    return result


def are_disjoint(algebra: Algebra, a: Node, b: Node, depth: int = DISJOINT_DEPTH) -> bool:
    """True: no value satisfies both. False: some value does, or types and discriminators do not tell."""
    if a == FALSE or b == FALSE or algebra.are_complements(a, b):
        return True
    if a in (b, TRUE) or b == TRUE:
        return algebra.is_empty(a) if a == b else False
    if (a, b) in algebra.disjoint:
        return True
    try:
        x, y = algebra.form(a), algebra.form(b)
    except Loop:
        return False
    if not _are_disjoint(algebra, x, y, depth):
        return False  # or not known yet
    algebra.disjoint.add((a, b))
    return True


def _are_disjoint(algebra: Algebra, x: NormalForm, y: NormalForm, depth: int) -> bool:
    return (
        not x.constants & y.constants
        and (x.number is NO_NUMBER or y.number is NO_NUMBER or (x.number & y.number).is_empty())
        and (x.string is NO_STRING or y.string is NO_STRING or x.string.is_disjoint(y.string, algebra.spend))
        and all(_disjoint_arrays(algebra, s, t, depth) for s in x.arrays for t in y.arrays)
        and all(_disjoint_objects(algebra, s, t, depth) for s in x.objects for t in y.objects)
    )


def _disjoint_objects(algebra: Algebra, a: ObjectConstraint, b: ObjectConstraint, depth: int) -> bool:
    if depth == 0:
        return False
    for name in a.required | b.required:
        x, y = value_of(a, name), value_of(b, name)
        if x == FALSE or y == FALSE or are_disjoint(algebra, x, y, depth - 1):
            return True
    return (a.maximum is not None and a.maximum < max(b.minimum, len(b.required))) or (
        b.maximum is not None and b.maximum < max(a.minimum, len(a.required))
    )


def _disjoint_arrays(algebra: Algebra, a: ArrayConstraint, b: ArrayConstraint, depth: int) -> bool:
    if depth == 0:
        return False
    if (a.maximum is not None and a.maximum < b.minimum) or (b.maximum is not None and b.maximum < a.minimum):
        return True
    sure = min(max(a.minimum, b.minimum), max(len(a.prefix), len(b.prefix)) + 1)
    return any(are_disjoint(algebra, item_of(a, i), item_of(b, i), depth - 1) for i in range(sure))
