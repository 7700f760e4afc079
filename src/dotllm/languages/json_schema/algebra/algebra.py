"""∧, ∨, ¬ on schemas: nodes, their normal forms, and which nodes are empty.

A node is a sub-schema or a boolean combination of nodes. Equal combinations are one node, so a recursive schema leads
to finitely many nodes and recursion ends. The `NormalForm` of a node is computed on first use: making a node costs a
dictionary look-up, and nodes that no document can reach get no form.

Emptiness checks prune alternatives. The answer "not empty" may mean "not known": the grammar finds the other empty
nodes, as their rules are unproductive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Protocol, TypeVar

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.json_schema.algebra import arrays, object_unions, objects
from dotllm.languages.json_schema.algebra.nodes import ObjectCondition
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_CONSTANTS,
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_STRING,
    ANYTHING,
    FALSE,
    NO_NUMBER,
    NO_STRING,
    NOTHING,
    TRUE,
    ArrayConstraint,
    Node,
    NormalForm,
    ObjectConstraint,
)
from dotllm.languages.json_schema.algebra.object_conditions import conditions
from dotllm.languages.json_schema.options import SchemaBudget
from dotllm.languages.json_schema.reading.document import Scope

MAX_DEPTH = 100  # of applicators in place (allOf in allOf …); not of documents
CHECK_DEPTH = 24  # of nested emptiness checks
FEW_FORMS = 16  # of a conjunction: up to this many are met one after another

SCHEMA, AND, OR, NOT, FORM = "schema", "and", "or", "not", "form"


class Loop(InvalidSpecError):
    """A schema that is defined in terms of itself, in place. It means nothing, unless only an emptiness check met it
    again."""


Item = TypeVar("Item")


def _in_halves(join: Callable[[Item, Item], Item], items: Sequence[Item], none: Item) -> Item:
    """All ``items`` joined: one after another, n items of one value each would copy n²/2 values."""
    if len(items) < 2:
        return items[0] if items else none
    middle = len(items) // 2
    return join(_in_halves(join, items[:middle], none), _in_halves(join, items[middle:], none))


class FormReader(Protocol):
    """What the algebra needs of the reader of sub-schemas (`Keywords`)."""

    def form(self, schema: dict[str, Any], scope: Scope) -> NormalForm:
        """The normal form of a sub-schema."""


class Algebra:
    """All nodes of one document. ``reader``, which holds the algebra, is held weakly."""

    def __init__(self, budget: SchemaBudget) -> None:
        self.reader: FormReader
        self.budget = budget
        self.parts: list[tuple[str, Any]] = [(FORM, ANYTHING), (FORM, NOTHING)]
        self._forms: list[NormalForm | None] = [ANYTHING, NOTHING]
        self._found: dict[object, Node] = {}
        self._complements: dict[Node, Node] = {TRUE: FALSE, FALSE: TRUE}
        self._empty: dict[Node, bool] = {TRUE: False, FALSE: True}
        self.disjoint: set[tuple[Node, Node]] = set()  # what `disjointness` has found
        self._lists: dict[Node, frozenset[str] | None] = {}
        self._active: set[Node] = set()
        self._halves: dict[Node, tuple[Node, Node]] = {}
        self._conditions: dict[
            int, tuple[ObjectConstraint, list[ObjectCondition]]
        ] = {}  # by the identity of a constraint
        self._checks = 0
        self._steps_left = budget.steps

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, kind: str, payload: Any, key: object = None) -> Node:
        node = Node(len(self.parts))
        if node > self.budget.nodes:
            raise BudgetExceededError(f"more than {self.budget.nodes} combinations of sub-schemas", keyword="allOf")
        self.parts.append((kind, payload))
        self._forms.append(None)
        if key is not None:
            self._found[key] = node
        return node

    def of_schema(self, schema: dict[str, Any], scope: Scope) -> Node:
        """The node of a sub-schema in its scope."""
        key = (id(schema), id(scope))
        result = self._found.get(key)
        return self._node(SCHEMA, (schema, scope), key) if result is None else result

    def of_form(self, form: NormalForm, key: object = None) -> Node:
        """A node that has this form; the same ``key`` gives the same node again."""
        result = self._found.get(key) if key is not None else None
        if result is None:
            result = self._node(FORM, form, key)
            self._forms[result] = form
        return result

    def both(self, a: Node, b: Node) -> Node:
        """a ∧ b."""
        if a in (b, FALSE) or b == TRUE:
            return a
        if a == TRUE or b == FALSE:
            return b
        first, second = self._members(a), self._members(b)
        members = first | second
        result = self._found.get(members)
        if result is None:
            few, many = (first, second) if len(first) < len(second) else (second, first)
            if any(self._complements.get(member) in many for member in few):
                result = self._found[members] = FALSE
            else:
                result = self._node(AND, members, members)
                self._halves[result] = (a, b)
        return result

    def _members(self, node: Node) -> frozenset[Node]:
        kind, payload = self.parts[node]
        return payload if kind is AND else frozenset((node,))

    def is_part(self, a: Node, b: Node) -> bool:
        """Whether ``b`` is made of ``a`` and further nodes by `both`, so that it allows no more."""
        return a == TRUE or self._members(a) <= self._members(b)

    def all_of(self, nodes: Iterable[Node]) -> Node:
        """The conjunction of any number of nodes."""
        out = TRUE
        for node in nodes:
            out = self.both(out, node)
        return out

    def any_of(self, nodes: Sequence[Node]) -> Node:
        """The union of any number of nodes."""
        distinct = dict.fromkeys(node for node in nodes if node != FALSE)
        if TRUE in distinct or any(self._complements.get(node) in distinct for node in distinct):
            return TRUE
        members = tuple(distinct)
        if len(members) < 2:
            return members[0] if members else FALSE
        key = (OR, members)
        result = self._found.get(key)
        return self._node(OR, members, key) if result is None else result

    def complement(self, a: Node) -> Node:
        """¬ a."""
        result = self._complements.get(a)
        if result is None:
            result = self._node(NOT, a)
            self._complements[a] = result
            self._complements[result] = a
        return result

    def are_complements(self, a: Node, b: Node) -> bool:
        """Whether one was made as the complement of the other."""
        return self._complements.get(a) == b

    def is_compound(self, a: Node) -> bool:
        """Whether ``a`` was made by `both` or `complement`, so its emptiness is worth checking."""
        kind = self.parts[a][0]
        return kind is AND or kind is NOT

    def empty_among(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The compound nodes among ``nodes`` that are empty, found one by one as the caller iterates."""
        known = self._empty
        for node in nodes:
            # nearly always the node is known not to be empty
            if known.get(node) is not False and self.is_compound(node) and self.is_empty(node):
                yield node

    def conditions_of(self, constraint: ObjectConstraint) -> list[ObjectCondition]:
        """`object_conditions.conditions`, cached."""
        result = self._conditions.get(id(constraint))
        if result is None:
            result = self._conditions[id(constraint)] = constraint, conditions(constraint)
        return result[1]

    def spend(self, steps: int) -> None:
        """Count work against the budget. Raises BudgetExceededError if no steps are left."""
        cancellation.check()
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetExceededError(
                f"combining sub-schemas takes more than {self.budget.steps} steps; it is the product of allOf, anyOf, "
                "oneOf, not and if",
                keyword="oneOf",
                help="list the intended combinations in one anyOf",
            )

    # -- forms ---------------------------------------------------------------------------------------------------------

    def form(self, node: Node) -> NormalForm:
        """The normal form of a node. Raises Loop if it is defined by itself, BudgetExceededError if it is too deep."""
        form = self._forms[node]
        if form is None:
            if node in self._active:
                raise Loop("a schema refers to itself without end", keyword="$ref")
            if len(self._active) > MAX_DEPTH:
                raise BudgetExceededError(
                    f"schemas nested in place more than {MAX_DEPTH} deep", keyword="allOf", code="too_deep"
                )
            self._active.add(node)
            try:
                form = self._forms[node] = self._compute(node)
            finally:
                self._active.discard(node)
        return form

    def _compute(self, node: Node) -> NormalForm:
        kind, payload = self.parts[node]
        if kind is SCHEMA:
            return self.reader.form(*payload)
        if kind is NOT:
            return self.negation(self.form(payload))
        if kind is AND:
            a, b = self._halves[node]
            known = self._forms[a]
            if known is not None:
                return self.meet(known, self.form(b))
            out = ANYTHING
            # Complements come last, so that they are compared with everything that must hold.
            for member in sorted(payload, key=lambda member: (self.parts[member][0] is NOT, member)):
                out = self.meet(out, self.form(member))
            return out
        return self.unite([self.form(member) for member in payload])

    def meet_all(self, forms: Sequence[NormalForm]) -> NormalForm:
        """The values that all forms allow. Many forms of one alternative each are met in halves: met one after another,
        n objects with one property each would copy n²/2 properties."""
        if len(forms) <= FEW_FORMS or any(len(form.objects) > 1 or len(form.arrays) > 1 for form in forms):
            return reduce(self.meet, forms, ANYTHING)
        middle = len(forms) // 2
        return self.meet(self.meet_all(forms[:middle]), self.meet_all(forms[middle:]))

    def meet(self, a: NormalForm, b: NormalForm) -> NormalForm:
        """The values that both forms allow."""
        if a is ANYTHING:
            return b
        if b is ANYTHING:
            return a
        self.spend(5)
        return NormalForm(
            a.constants & b.constants,
            a.number & b.number if a.number is not NO_NUMBER and b.number is not NO_NUMBER else NO_NUMBER,
            a.string & b.string if a.string is not NO_STRING and b.string is not NO_STRING else NO_STRING,
            self._meet_arrays(a.arrays, b.arrays),
            self._meet_objects(a.objects, b.objects),
        )

    def _meet_arrays(
        self, a: tuple[ArrayConstraint, ...], b: tuple[ArrayConstraint, ...]
    ) -> tuple[ArrayConstraint, ...]:
        if len(a) == 1 and a[0] is ANY_ARRAY:
            return b
        if len(b) == 1 and b[0] is ANY_ARRAY:
            return a
        self._check_product(len(a), len(b))
        met = (arrays.meet(self, x, y) for x in a for y in b)
        return arrays.united([constraint for constraint in met if constraint is not None])

    def _meet_objects(
        self, a: tuple[ObjectConstraint, ...], b: tuple[ObjectConstraint, ...]
    ) -> tuple[ObjectConstraint, ...]:
        if len(a) == 1 and a[0] is ANY_OBJECT:
            return b
        if len(b) == 1 and b[0] is ANY_OBJECT:
            return a
        self._check_product(len(a), len(b))
        met = (objects.meet(self, x, y) for x in a for y in b)
        return object_unions.united([constraint for constraint in met if constraint is not None])

    def _check_product(self, a: int, b: int) -> None:
        if a * b > self.budget.alternatives:
            raise BudgetExceededError(
                f"anyOf, oneOf, not and if multiply to more than {self.budget.alternatives} alternatives",
                keyword="anyOf",
                help="list the intended combinations in one anyOf",
            )

    def unite(self, forms: Sequence[NormalForm]) -> NormalForm:
        """The values that any of the forms allows. Raises BudgetExceededError if one type has too many alternatives."""
        if len(forms) == 1:
            return forms[0]
        constants = 0
        array_constraints: list[ArrayConstraint] = []
        object_constraints: list[ObjectConstraint] = []
        for form in forms:
            constants |= form.constants
            array_constraints.extend(form.arrays)
            object_constraints.extend(form.objects)
        if max(len(array_constraints), len(object_constraints)) > self.budget.alternatives:
            raise BudgetExceededError(
                f"more than {self.budget.alternatives} alternatives",
                keyword="anyOf",
                help="join those that differ in the value of one property, with an enum",
            )
        return NormalForm(
            constants,
            _in_halves(or_, [form.number for form in forms if form.number is not NO_NUMBER], NO_NUMBER),
            _in_halves(or_, [form.string for form in forms if form.string is not NO_STRING], NO_STRING),
            arrays.united(array_constraints),
            object_unions.united(object_constraints),
        )

    def negation(self, a: NormalForm) -> NormalForm:
        """All values that ``a`` does not allow."""
        array_constraints: tuple[ArrayConstraint, ...] = (ANY_ARRAY,)
        for array in a.arrays:
            others = arrays.negation(self, array)
            array_constraints = self._meet_arrays(array_constraints, (*others, *array.negated))
        object_constraints: tuple[ObjectConstraint, ...] = (ANY_OBJECT,)
        for constraint in a.objects:
            rest = object_unions.negation(self, constraint)
            object_constraints = self._meet_objects(
                object_constraints, (*((rest,) if rest else ()), *constraint.negated)
            )
        return NormalForm(
            ALL_CONSTANTS & ~a.constants,
            NO_NUMBER if a.number is ANY_NUMBER else ANY_NUMBER if a.number is NO_NUMBER else ~a.number,
            NO_STRING if a.string is ANY_STRING else ANY_STRING if a.string is NO_STRING else ~a.string,
            array_constraints,
            object_constraints,
        )

    # -- questions -----------------------------------------------------------------------------------------------------

    def is_empty(self, a: Node) -> bool:
        """True: no value satisfies ``a``. False: some does, or it is not known."""
        known = self._empty.get(a)
        if known is not None:
            return known
        if self._checks > CHECK_DEPTH or len(self._active) > MAX_DEPTH - 10:
            return False
        self._checks += 1
        try:
            form = self.form(a)
        except Loop:
            return False
        finally:
            self._checks -= 1
        empty = (
            not form.constants
            and not form.arrays
            and not form.objects
            and (form.number is NO_NUMBER or form.number.is_empty())
            and (form.string is NO_STRING or form.string.is_empty(self.spend))
        )
        self._empty[a] = empty
        return empty

    def are_apart(self, a: Node, b: Node) -> bool:
        """`is_empty` of `both`. Lists of strings, which often tell alternatives apart, are compared without a node."""
        x = self.listed(a)
        y = self.listed(b) if x is not None else None
        return self.is_empty(self.both(a, b)) if x is None or y is None else x.isdisjoint(y)

    def is_within(self, a: Node, b: Node) -> bool:
        """`is_empty` of ``a`` ∧ ¬ ``b``, in the same way."""
        x = self.listed(a)
        y = self.listed(b) if x is not None else None
        return self.is_empty(self.both(a, self.complement(b))) if x is None or y is None else x <= y

    def known_form(self, a: Node) -> NormalForm | None:
        """The form of a node; None if finding it would nest too deeply, or the node is defined by itself."""
        if self._forms[a] is None:
            self.is_empty(a)  # finds the form
        return self._forms[a]

    def listed(self, a: Node) -> frozenset[str] | None:
        """The values of a node that is seen to allow nothing but some listed strings; None for any other."""
        if a in self._lists:
            return self._lists[a]
        form = self.known_form(a)
        if form is None:
            return None
        only_strings = not (
            form.constants or form.arrays or form.objects or form.number.parts or form.string.constraints
        )
        result = self._lists[a] = form.string.values if only_strings else None
        return result

    def is_scalar(self, a: Node) -> bool:
        """Whether ``a`` allows either all arrays or none, and either all objects or none."""
        form = self.form(a)
        return form.arrays in ((), (ANY_ARRAY,)) and form.objects in ((), (ANY_OBJECT,))
