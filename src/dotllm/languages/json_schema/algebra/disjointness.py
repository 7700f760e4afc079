"""Finds disjoint nodes by their types, listed values and discriminators; ``oneOf`` builds on this.

The answer "not disjoint" may mean "not known"; then ``oneOf`` excludes the other branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import combinations, islice
from typing import TypeAlias, TypeVar

from dotllm.languages.json_schema.algebra.algebra import Algebra, Loop
from dotllm.languages.json_schema.algebra.normal_form import (
    ANYTHING,
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
_PAIRS_AT_ONCE = 4096
"""So many pairs are found before they are counted as steps: n branches may have n² of them."""


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

    Only nodes that share a type are compared, and of those that list their values only the ones that share a value: n
    branches with one value each take n steps.
    """
    if len(nodes) < FEW_BRANCHES:
        return combinations(range(len(nodes)), 2)
    pairs: set[tuple[int, int]] = set()

    def add(more: Iterable[tuple[int, int]]) -> None:
        pending = iter(more)
        while following := [*islice(pending, _PAIRS_AT_ONCE)]:
            before = len(pairs)
            pairs.update(following)
            algebra.spend(len(pairs) - before)

    for values_of in _values_by_type(algebra, nodes):
        sharing: dict[Hashable, list[int]] = {}
        for i, values in values_of.items():
            for value in values or ():
                sharing.setdefault(value, []).append(i)
        for together in sharing.values():
            add(combinations(together, 2))
        for i in (i for i, values in values_of.items() if values is None):
            add((min(i, j), max(i, j)) for j in values_of if i != j)
    return sorted(pairs)


_Values: TypeAlias = frozenset[Hashable]


def _values_by_type(algebra: Algebra, nodes: Sequence[Node]) -> list[dict[int, _Values | None]]:
    """For each type: the values of this type by the number of the node, None if it does not list them.

    Objects and arrays have the values of one property or item, which most of them require and list.
    """
    result: list[dict[int, _Values | None]] = [{}, {}, {}]
    objects: dict[int, dict[Hashable, _Values]] = {}
    arrays: dict[int, dict[Hashable, _Values]] = {}
    for i, node in enumerate(nodes):
        try:
            form = algebra.form(node)
        except Loop:  # its types are not known
            form = ANYTHING
        for of_type, values in zip(result, _scalars(form), strict=True):
            if values != NO_VALUES:
                of_type[i] = values
        if form.objects:
            required = frozenset.intersection(*(constraint.required for constraint in form.objects))
            objects[i] = _listed(algebra, form.objects, value_of, sorted(required))
        if form.arrays:
            sure = min(min(constraint.minimum, len(constraint.prefix)) for constraint in form.arrays)
            arrays[i] = _listed(algebra, form.arrays, item_of, range(sure))
    for parts in (objects, arrays):
        counts = Counter(place for listed in parts.values() for place in listed)
        best = max(counts, key=counts.__getitem__, default=None)
        result.append({i: listed.get(best) for i, listed in parts.items()})
    return result


Constraint = TypeVar("Constraint")
Place = TypeVar("Place", bound=Hashable)


def _listed(
    algebra: Algebra,
    constraints: Sequence[Constraint],
    node_at: Callable[[Constraint, Place], Node],
    places: Collection[Place],
) -> dict[Hashable, _Values]:
    """The scalars that each of ``places`` has in all ``constraints``, if these list them."""
    algebra.spend(1 + len(places))
    result: dict[Hashable, _Values] = {}
    for place in places:
        lists = [_only_scalars(algebra.known_form(node_at(constraint, place))) for constraint in constraints]
        if None not in lists:
            result[place] = NO_VALUES.union(*(values for values in lists if values is not None))
    return result


NO_VALUES: _Values = frozenset()


def _scalars(form: NormalForm) -> tuple[_Values, _Values | None, _Values | None]:
    """The constants, numbers and strings of a form; None where they are not listed."""
    constants = frozenset((1 << bit,) for bit in range(form.constants.bit_length()) if form.constants >> bit & 1)
    strings: _Values | None = form.string.values if not form.string.constraints else None
    return constants, form.number.listed(), strings


def _only_scalars(form: NormalForm | None) -> _Values | None:
    """All values of a form that lists them; None for any other."""
    if form is None or form.arrays or form.objects:
        return None
    constants, numbers, strings = _scalars(form)
    return None if numbers is None or strings is None else constants | numbers | strings


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


def overlapping(algebra: Algebra, x: NormalForm, y: NormalForm) -> NormalForm:
    """``x`` without those of its alternatives for objects that types and discriminators tell apart from ``y``. To meet
    them costs more than to compare them."""
    algebra.spend(len(x.objects) * len(y.objects))
    apart = (all(_disjoint_objects(algebra, s, t, DISJOINT_DEPTH) for t in y.objects) for s in x.objects)
    return x._replace(objects=tuple(s for s, is_apart in zip(x.objects, apart, strict=True) if not is_apart))


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
