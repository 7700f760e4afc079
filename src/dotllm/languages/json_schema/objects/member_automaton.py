"""Builds the automaton over the members of an object in the general case, with only the reachable states.

A state consists of the position in the declared order, the keys without a declared place that have been written, the
number of members, and what is undecided: clauses, and negated constraints that the object may still satisfy. Once the
only open question is which keys follow, the rest is an unordered sequence of them. So with keys in any order,
``minProperties: n`` takes a state for every set of up to n keys, not for every set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra.normal_form import FALSE, TRUE, Clause, Node, ObjectConstraint, value_of
from dotllm.languages.json_schema.algebra.partition import partition_by
from dotllm.languages.json_schema.objects.unnamed_keys import counts_unnamed, key_classes_of, with_few_named
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.writer import Writer

MAX_UNORDERED = 5
"""Keys without a declared place may come in any order if there are at most this many; otherwise they come in the order
in which the schema mentions them."""

_SCANNED_PER_STEP = 16
"""Literals of clauses, and excluded constraints, that are looked at in about the time of a step of the algebra."""

Edge = tuple[int, Expression, int]


class MemberState(NamedTuple):
    """What matters of the text so far.

    ``position``: the number of keys with a place that have been passed; ``written``: the keys without a place that have
    been written (bits). ``members``: the number of members so far, capped. ``open``: clauses not yet decided, without
    those that are only about keys from ``position`` on (`_Later`). ``undecided``: the excluded constraints that the
    object may still satisfy, with their undecided clauses, without those that have not begun (`_begin_of`).
    """

    position: int
    written: int
    members: int
    open: frozenset[Clause]
    undecided: tuple[tuple[int, frozenset[Clause]], ...]


class _Later(NamedTuple):
    """Clauses that are only about keys with a place. Until its first key has been passed, a clause is the same in all
    states, so states do not hold it: n states with n clauses each would take n² time and memory.

    ``begun_by``: the clauses by their first key. ``end``: from this position on, all clauses have begun;
    ``positive_end``: the same for the clauses that no absence satisfies.
    """

    begun_by: dict[str, frozenset[Clause]]
    end: int = 0
    positive_end: int = 0


class _MemberAutomaton:
    """The general case, with states made as they are reached."""

    def __init__(self, writer: Writer, constraint: ObjectConstraint) -> None:
        self.writer = writer
        is_stateful = counts_unnamed(constraint)
        constraint, others = (
            with_few_named(constraint, writer.options.order)
            if is_stateful
            else (constraint, key_classes_of(constraint, writer.options.order))
        )
        self._others = [(keys, node, _telling(enumerate(values))) for keys, node, values in others]
        self._is_stateful = is_stateful and bool(others)
        self.constraint = constraint
        self.negated = constraint.negated
        self.ordered, self.unordered = self._places()
        self.keyword = (
            "properties"
            if len(self.unordered) > MAX_UNORDERED and writer.options.order != "any"
            else "not"
            if constraint.negated
            else "minProperties"
            if constraint.minimum
            else "maxProperties"
            if constraint.maximum is not None
            else "dependentRequired"
        )
        limits = [constraint.minimum]
        for limited in (constraint, *constraint.negated):
            limits.append(limited.minimum)
            if limited.maximum is not None:
                limits.append(limited.maximum + 1)
        self.count_limit = max(limits)
        self.edges: list[Edge] = []
        self._parts = 0
        """Parts of unordered sequences; they count like edges."""
        self.numbers: dict[tuple[MemberState, bool], int] = {}
        self.pending: list[tuple[MemberState, bool]] = []
        self._members: dict[object, Expression] = {}
        self._excluded: dict[str, dict[int, Node]] = {}
        self._partitions: dict[tuple[Node, tuple[tuple[int, Node], ...]], list[tuple[Node, frozenset[int]]]] = {}
        self._place = {name: i for i, name in enumerate(self.ordered)}
        self._breakable = [self._breakable_until(other) for other in self.negated]
        self._later = _Later({})
        self._later_excluded: list[_Later] = []
        self._begins: dict[str, list[int]] = {}  # by key: the excluded constraints that begin with it
        self._saying: dict[str, list[int]] = {}  # by key: the excluded constraints that say something of its value
        self._saying_of_all = [j for j, other in enumerate(self.negated) if _is_about_all_keys(other)]
        self._decisions: dict[tuple[frozenset[Clause], str, bool], frozenset[Clause] | None] = {}
        self._concerned: dict[str, set[int]] = {}  # by key: the excluded constraints with a clause about it
        for j, other in enumerate(self.negated):
            for name in other.required.union(name for clause in other.clauses for name, _ in clause):
                self._concerned.setdefault(name, set()).add(j)
            for name, node in other.properties.items():
                if node != TRUE:
                    self._saying.setdefault(name, []).append(j)

    def _places(self) -> tuple[list[str], list[str]]:
        """The named keys that have a place, in order, and those that have none."""
        names = dict.fromkeys(self.constraint.properties)
        for other in self.negated:
            names.update(dict.fromkeys(other.properties))
        possible = [name for name in names if value_of(self.constraint, name) != FALSE]
        if self.writer.options.order == "any":
            return [], possible
        placed = self.constraint.properties.keys() - self.constraint.mentioned
        free = [name for name in possible if name not in placed]
        if len(free) > MAX_UNORDERED:
            return [name for name in possible if name in placed] + free, []
        return [name for name in possible if name in placed], free

    def expression(self) -> Expression:
        """Walk all reachable states, then write the automaton. Raises BudgetExceededError if it has too many edges."""
        grammar, text = self.writer.grammar, self.writer.text
        skip = grammar.empty()
        start = self._start()
        if start is None:
            return grammar.never()
        self.edges.append((0, skip, self._number(start, False)))
        if self._accepts(start):
            self.edges.append((0, skip, 1))
        limit = self.writer.options.budget.edges
        while self.pending:
            state, done = self.pending.pop()
            number = self.numbers[state, done]
            if done:
                if self._accepts(state):
                    self.edges.append((number, skip, 1))
                self.edges.append((number, text.comma, self._number(state, False)))
            elif not self._write_rest(state, number):
                self._expand(state, number)
            if len(self.edges) + self._parts > limit:
                less = "name fewer properties, or lower minProperties and maxProperties"
                any_order = self.writer.options.order == "any"
                raise BudgetExceededError(
                    f"an object needs an automaton of more than {limit} edges",
                    keyword=self.keyword,
                    help=f"ask for keys in declared order, {less}" if any_order else less,
                )
        self.writer.spend(len(self.edges) + self._parts, self.keyword)
        return text.object(2 + len(self.numbers), (1,), self.edges, self.keyword if self._is_stateful else None)

    def _start(self) -> MemberState | None:
        """The state before the first member, with all impossible keys known to be absent; None for a contradiction."""
        constraint = self.constraint
        state = MemberState(
            0,
            0,
            0,
            constraint.clauses.union(frozenset([(name, True)]) for name in constraint.required),
            tuple(
                (j, other.clauses.union(frozenset([(name, True)]) for name in other.required))
                for j, other in enumerate(self.negated)
            ),
        )
        possible = {*self.ordered, *self.unordered}
        impossible = {
            name for other in (constraint, *self.negated) for name in other.properties if name not in possible
        }
        self._later_excluded = [_Later({})] * len(self.negated)
        for name in impossible:
            decided = self._decided(state, name, False)
            if decided is None:
                return None
            state = state._replace(open=decided[0], undecided=decided[1])
        begun, self._later = self._split(state.open)
        undecided = []
        for j, clauses in state.undecided:
            left, self._later_excluded[j] = self._split(clauses)
            begin = None if left else self._begin_of(j)
            if begin is None:
                undecided.append((j, left))
            else:
                self._begins.setdefault(begin, []).append(j)
        return state._replace(open=begun, undecided=tuple(undecided))

    def _begin_of(self, j: int) -> str | None:
        """The first key of an excluded constraint that is only about keys with a place, and asks for one of them. Until
        this key has been passed, the constraint is the same in all states, so states do not hold it."""
        later, properties = self._later_excluded[j], self.negated[j].properties
        if self._breakable[j] > len(self.ordered) or not later.positive_end:
            return None
        names = [*later.begun_by, *(name for name, node in properties.items() if node != TRUE and name in self._place)]
        return min(names, key=self._place.__getitem__)

    def _split(self, clauses: frozenset[Clause]) -> tuple[frozenset[Clause], _Later]:
        """The clauses about a key without a place, and the others."""
        begun, begun_by = [], dict[str, list[Clause]]()
        end = positive_end = 0
        for clause in clauses:
            if not all(name in self._place for name, _ in clause):
                begun.append(clause)
                continue
            first = min(self._place[name] for name, _ in clause)
            begun_by.setdefault(self.ordered[first], []).append(clause)
            end = max(end, first + 1)
            if all(present for _, present in clause):
                positive_end = max(positive_end, first + 1)
        later = {name: frozenset(names) for name, names in begun_by.items()}
        return frozenset(begun), _Later(later, end, positive_end)

    def _number(self, state: MemberState, done: bool) -> int:
        key = (state, done)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = 2 + len(self.numbers)
            self.pending.append(key)
        return number

    def _write_rest(self, state: MemberState, number: int) -> bool:
        """Write the rest as an unordered sequence if nothing depends on order or number any more; else return False."""
        constraint = self.constraint
        if self.ordered or state.undecided or constraint.maximum is not None or state.members < constraint.minimum:
            return False
        literals = [literal for clause in state.open for literal in clause]
        if len(literals) > len(state.open) or not all(present for _, present in literals):
            return False
        required = {name for name, _ in literals}
        members: tuple[list[Expression], list[Expression]] = [], []
        for i, name in enumerate(self.unordered):
            if not state.written >> i & 1:
                members[name not in required].append(self._member(name, value_of(constraint, name)))
        others = [self._member(language, node) for language, node, _ in self._others]
        parts = len(members[0]) + len(members[1]) + len(others)
        if parts:
            rest = self.writer.grammar.unordered(*members, others, self.writer.text.comma)
            self.edges.append((number, rest, 1))
            self._parts += parts
        return True

    def _expand(self, state: MemberState, number: int) -> None:
        """Add the edges of a state in which a member must follow."""
        counted = min(state.members + 1, self.count_limit)
        may_add = self.constraint.maximum is None or state.members < self.constraint.maximum
        if state.position < len(self.ordered):
            name = self.ordered[state.position]
            if may_add:
                self._write(state, number, name, state.position + 1, state.written, counted)
            skipped = self._decided(state, name, False)
            if skipped is not None:
                after = MemberState(state.position + 1, state.written, state.members, *skipped)
                if not self._is_dead(after):
                    self.edges.append((number, self.writer.grammar.empty(), self._number(after, False)))
        elif may_add:
            for i, name in enumerate(self.unordered):
                if not state.written >> i & 1:
                    self._write(state, number, name, state.position, state.written | 1 << i, counted)
            for language, node, excluded in self._others:
                for value, avoided in self._values(node, excluded, state.undecided):
                    left = tuple([other for other in state.undecided if other[0] not in avoided])
                    after = state._replace(members=counted, undecided=left)
                    self.edges.append((number, self._member(language, value), self._number(after, True)))

    def _write(self, state: MemberState, number: int, name: str, position: int, written: int, members: int) -> None:
        """Add the edges that write the key ``name``; the last three arguments describe the states they lead to."""
        decided = self._decided(state, name, True)
        if decided is None:
            return
        open_, undecided = decided
        excluded = self._excluded.get(name)
        if excluded is None:
            saying = (*self._saying_of_all, *self._saying.get(name, ()))
            excluded = self._excluded[name] = _telling((j, value_of(self.negated[j], name)) for j in saying)
        for value, avoided in self._values(value_of(self.constraint, name), excluded, undecided):
            left = tuple([other for other in undecided if other[0] not in avoided])
            target = MemberState(position, written, members, open_, left)
            if not self._is_dead(target):
                self.edges.append((number, self._member(name, value), self._number(target, True)))

    def _values(
        self, node: Node, excluded: dict[int, Node], undecided: tuple[tuple[int, frozenset[Clause]], ...]
    ) -> list[tuple[Node, frozenset[int]]]:
        """The nodes of a member's value, each with the excluded constraints that it breaks. ``excluded``: what these
        say of the value, if they say something."""
        key = node, tuple([(j, excluded[j]) for j, _ in undecided if j in excluded])
        result = self._partitions.get(key)
        if result is None:
            by_node: dict[Node, list[int]] = {}
            for j, other in key[1]:
                by_node.setdefault(other, []).append(j)
            result = self._partitions[key] = [
                (value, frozenset(j for other in others for j in by_node[other]))
                for value, others in partition_by(self.writer.algebra, node, by_node)
            ]
        return result

    def _decided(
        self, state: MemberState, name: str, present: bool
    ) -> tuple[frozenset[Clause], tuple[tuple[int, frozenset[Clause]], ...]] | None:
        """The undecided constraints once it is known whether the key ``name`` is present; None for a contradiction."""
        open_ = self._after(state.open, self._later, name, present)
        if open_ is None:
            return None
        before = state.undecided
        if name in self._begins:
            before = tuple(sorted([*before, *((j, frozenset()) for j in self._begins[name])]))
        self.writer.algebra.spend(len(before) // _SCANNED_PER_STEP)
        concerned = self._concerned.get(name)
        if concerned is None:
            return open_, before
        undecided = []
        for excluded in before:
            j, clauses = excluded
            if j in concerned:
                left = self._after(clauses, self._later_excluded[j], name, present)
                if left is None:
                    continue
                excluded = (j, left)
            undecided.append(excluded)
        return open_, tuple(undecided)

    def _after(self, clauses: frozenset[Clause], later: _Later, name: str, present: bool) -> frozenset[Clause] | None:
        """`decide` for ``clauses`` and those that ``name`` begins; cached, as many states ask the same."""
        begun = later.begun_by.get(name)
        if begun is not None:
            clauses = clauses | begun
        if not clauses:
            return clauses
        key = clauses, name, present
        if key not in self._decisions:
            self.writer.algebra.spend(sum(map(len, clauses)) // _SCANNED_PER_STEP)
            self._decisions[key] = decide(clauses, name, present)
        return self._decisions[key]

    def _breakable_until(self, other: ObjectConstraint) -> int:
        """The position after which only the presence of keys can still tell an object from ``other``."""
        telling = [name for name, node in other.properties.items() if node != TRUE]
        if (
            other.minimum
            or other.maximum is not None
            or _is_about_all_keys(other)
            or not set(telling).isdisjoint(self.unordered)
        ):
            return len(self.ordered) + 1
        return max((self._place[name] + 1 for name in telling if name in self._place), default=0)

    def _is_dead(self, state: MemberState) -> bool:
        """Whether some excluded constraint can no longer be broken."""
        return any(
            not clauses and max(self._breakable[j], self._later_excluded[j].end) <= state.position
            for j, clauses in state.undecided
        )

    def _accepts(self, state: MemberState) -> bool:
        """Whether the object may end here, so that no other named key follows."""
        if state.members < self.constraint.minimum:
            return False
        # All keys in undecided clauses are absent: a clause holds if it asks for the absence of one.
        if self._later.positive_end > state.position:
            return False
        if any(all(present for _, present in clause) for clause in state.open):
            return False
        for j, clauses in state.undecided:
            if self._later_excluded[j].positive_end > state.position:
                continue
            if any(all(present for _, present in clause) for clause in clauses):
                continue
            least, most = self.negated[j].minimum, self.negated[j].maximum
            if state.members >= least and (most is None or state.members <= most):
                return False
        return True

    def _member(self, key: str | StringLanguage, value: Node) -> Expression:
        result = self._members.get((key, value))
        if result is None:
            text, body = self.writer.text, self.writer.value(value)
            result = text.named_member(key, body) if isinstance(key, str) else text.member(key, body)
            self._members[key, value] = result
        return result


def general_expression(writer: Writer, constraint: ObjectConstraint) -> Expression:
    """The texts of the objects of any constraint. Raises `BudgetExceededError` if that takes too many edges."""
    return _MemberAutomaton(writer, constraint).expression()


def _telling(values: Iterable[tuple[int, Node]]) -> dict[int, Node]:
    """The values that say something, by the number of their constraint."""
    return {j: node for j, node in values if node != TRUE}


def _is_about_all_keys(constraint: ObjectConstraint) -> bool:
    """Whether a constraint says something of the values of keys that it does not name."""
    return any(node != TRUE for _, node in constraint.key_classes)


def decide(clauses: frozenset[Clause], name: str, present: bool) -> frozenset[Clause] | None:
    """The clauses once it is known whether ``name`` is present; None if one of them fails."""
    holds, fails = (name, present), (name, not present)
    concerned = [clause for clause in clauses if fails in clause or holds in clause]
    if not concerned:
        return clauses
    left = [clause - {fails} for clause in concerned if holds not in clause]
    return clauses.difference(concerned).union(left) if all(left) else None
