"""Objects → automata over their members.

Keys that ``properties`` declares come in declared order, each at most once; all others follow, in any order. The
automaton is two chains: in state *next(i)* a member from ``i`` on must follow (after a comma), in state *done(i)* one
before ``i`` has just been written. So n optional properties cost 2n states and every member is written once. Keys that
are named without a place are an unordered sequence (`Grammar.unordered`) behind them; with ``order="any"`` all are.

Counts, conditions on which keys are there, and shapes the object must not have multiply these states by what is still
open: the count so far, the clauses that are not yet decided, the excluded shapes that are not yet broken; and by
which of the keys without a place have been written. (With ``order="any"`` such a shape is first made a union of
shapes without conditions, if that is possible.)

Keys that the schema does not name may come twice, which changes nothing where all that is said of them is what values
they have. Where they are counted, or one of them must have some value, guides remember them (`Grammar.unique_open`);
where they are few, they are named first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dotllm.errors import BudgetExceeded
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.form import (
    ANY_STRING,
    FALSE,
    TRUE,
    Clause,
    Node,
    ObjectShape,
    Region,
    value_of,
)
from dotllm.languages.json_schema.algebra.object_conditions import broken, conditions, mentioning
from dotllm.languages.json_schema.algebra.partition import told_apart
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.writer import ObjectWriter

MAX_EXPANDED = 128
MAX_FEW_KEYS = 64
MAX_UNORDERED = 5
"""Keys without a declared place may come in any order if they are no more than this; else in the order of mention."""

Edge = tuple[int, Expression, int]
Others = tuple[StringLanguage, Node, tuple[Node, ...]]
"""Keys that are not named, their values, and those of the same keys in each excluded shape."""


def object_expression(writer: ObjectWriter, stated: ObjectShape) -> Expression:
    """The texts of the objects of a shape."""
    shape = objects.closed(writer.algebra, stated)
    if shape is None:
        return writer.grammar.never()
    if not (shape.clauses or shape.negated or shape.minimum > 1 or shape.maximum is not None):
        return _chains(writer, shape, ())
    if writer.options.order == "any":
        plain = expanded(writer.algebra, shape, by_value=True) or expanded(writer.algebra, shape, by_value=False)
        if plain is not None and not any(_few(keys) for one, some in plain for keys, _ in _special(one, some)):
            return writer.grammar.alt([_chains(writer, one, others) for one, others in plain])
    return _Automaton(writer, shape).expression()


def _chains(writer: ObjectWriter, shape: ObjectShape, some: Sequence[Region]) -> Expression:
    """The common case: properties, required and what other keys may have; ``some`` of these must be there, one each."""
    grammar, text = writer.grammar, writer.text
    properties, required = shape.properties, shape.required
    possible = properties
    if FALSE in properties.values():
        if any(properties[name] == FALSE for name in required):
            return grammar.never()
        possible = {name: node for name, node in properties.items() if node != FALSE}
    others = [
        text.member(language, writer.value(node))
        for language, node in other_keys(shape.regions, properties)
        if node != FALSE
    ]
    values = writer.values(possible.values())
    members = list(zip(possible, text.named_members([*possible], values), strict=True))
    placed = members
    free: list[tuple[str, Expression]] = []
    if writer.options.order == "any":
        placed, free = free, members
    elif shape.mentioned:
        placed = [member for member in members if member[0] not in shape.mentioned]
        free = [member for member in members if member[0] in shape.mentioned]
    n = len(placed)
    last_required = max([i for i, (name, _) in enumerate(placed) if name in required], default=-1)
    # States: 0 the start, 1 the end, 2 + 2i next(i), 3 + 2i done(i). Behind the last name comes what has no place.
    end = 2 + 2 * n
    skip, comma = grammar.empty(), text.comma
    edges: list[Edge] = [(0, skip, 2)]
    if free or some:
        needed = [member for name, member in free if name in required] if required else []
        optional = [member for name, member in free if name not in required]
        if some:
            named = StringLanguage.excluding(properties)
            needed += [text.member(language & named, writer.value(node)) for language, node in some]
        if needed:
            last_required = n
        edges.append((end, grammar.unordered(needed, optional, others, comma), 1))
    else:
        edges.extend((end, other, end + 1) for other in others)
    if last_required < 0 and not shape.minimum:
        edges.append((0, skip, 1))
    for i, (name, member) in enumerate(placed):
        here = 2 + 2 * i
        edges.append((here, member, here + 3))
        if name not in required:
            edges.append((here, skip, here + 2))
    for i in range(0 if others else 1, n + 1):
        done = 3 + 2 * i
        edges.append((done, comma, done - 1))
        if i > last_required:
            edges.append((done, skip, 1))
    writer.spend(len(edges), "properties")
    return text.object(end + 2, (1,), edges, "not" if _special(shape, some) else None)


def expanded(
    algebra: Algebra, shape: ObjectShape, *, by_value: bool
) -> list[tuple[ObjectShape, tuple[Region, ...]]] | None:
    """``shape`` as a union of shapes that need no automaton over their members, each with the other keys of which there
    must be one; None if there is no such union of moderate size.

    For keys in any order: there the states of the automaton would be all subsets of the keys. ``by_value``: excluded
    shapes are first told apart by the values of keys, which is nearly always better.
    """
    out: list[tuple[ObjectShape, tuple[Region, ...]]] = []
    # With the keys by whose values it has been taken apart.
    pending: list[tuple[ObjectShape, tuple[Region, ...], frozenset[str]]] = [(shape, (), frozenset())]
    while pending:
        one, some, split = pending.pop()
        if one.minimum > 1 or one.maximum is not None or len(out) + len(pending) > MAX_EXPANDED:
            return None
        if one.clauses:
            # The key that decides most (ties by name); what follows from it is worked out by `meet`.
            counts = Counter(name for clause in one.clauses for name, _ in clause)
            name = min(counts, key=lambda name: (-counts[name], name))
            for way in (mentioning({name: FALSE}), mentioning({name: TRUE}, [name])):
                met = objects.meet(algebra, one, way)
                if met is not None:
                    pending.append((met, some, split))
        elif one.negated:
            telling = _telling(one, split) if by_value else None
            if telling is not None:
                split |= {telling}
                try:
                    pending.extend([(part, some, split) for part in _by_value(algebra, one, telling)])
                    continue
                except BudgetExceeded:  # too many kinds of values: one excluded shape after the other, then
                    pass
            rest = one._replace(negated=one.negated[1:])
            pending.extend((part, there, split) for part, there in _breaking(algebra, rest, some, one.negated[0]))
        else:
            out.append((one, some))
    return out


def _telling(shape: ObjectShape, split: frozenset[str]) -> str | None:
    """The key whose value most of several excluded shapes are about, and that has not been looked at; None: no key is
    in two of them."""
    counts = Counter(
        condition.name
        for other in shape.negated
        for condition in conditions(other)
        if condition.kind in ("value", "either") and condition.name not in split
    )
    name, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return name if count > 1 else None


def _by_value(algebra: Algebra, shape: ObjectShape, name: str) -> Iterator[ObjectShape]:
    """``shape`` by the excluded shapes that the value of ``name`` (or its absence) avoids.

    So a key that tells the alternatives of a oneOf apart decides nearly all of them at once.
    """
    about = [other for other in shape.negated if name in other.properties]
    here = value_of(shape, name)
    values = told_apart(algebra, here, dict.fromkeys(value_of(other, name) for other in about))
    absent = FALSE
    if name not in shape.required:
        # A value that avoids no more than absence does needs no alternative of its own.
        by_absence = {value_of(other, name) for other in about if name in other.required}
        alike = [part for part in values if set(part[1]) == by_absence]
        absent = algebra.any_of([node for node, _ in alike])
        values = [part for part in values if part not in alike]
        way = mentioning({name: absent})
        left = tuple(other for other in shape.negated if other not in about or name not in other.required)
        met = objects.meet(algebra, shape._replace(negated=left), way)
        if met is not None:
            yield met
    for node, _ in values:
        met = objects.meet(algebra, shape, mentioning({name: node}, [name]))
        if met is not None:
            yield met


def _breaking(
    algebra: Algebra, shape: ObjectShape, some: tuple[Region, ...], other: ObjectShape
) -> Iterator[tuple[ObjectShape, tuple[Region, ...]]]:
    """``shape`` (with ``some`` other keys) in all the ways in which it is not ``other``."""
    for condition in conditions(other):
        if condition.kind != "region":
            met = objects.meet(algebra, shape, broken(algebra, condition))
            if met is not None:
                yield met, some
            continue
        language, node = other.regions[condition.number]
        one_region = len(other.regions) == 1
        outside = algebra.complement(node)
        for name in shape.properties:
            if name not in other.properties and (one_region or language.contains(name)):
                met = objects.meet(algebra, shape, mentioning({name: outside}, [name]))
                if met is not None:
                    yield met, some
        keys = StringLanguage.excluding(other.properties)
        if not one_region:
            keys = language & keys
        for language, value in shape.regions:
            value = algebra.both(value, outside)
            here = keys if len(shape.regions) == 1 else language & keys
            if value != FALSE and not algebra.is_empty(value) and not here.is_empty():
                yield shape, (*some, (here, value))
        # One and the same member may do for several excluded shapes.
        for i, (others, value) in enumerate(some):
            value, here = algebra.both(value, outside), others & keys
            if value != FALSE and not algebra.is_empty(value) and not here.is_empty():
                yield shape, (*some[:i], (here, value), *some[i + 1 :])


def _counts_unnamed(shape: ObjectShape) -> bool:
    """Whether it matters that two keys that the schema does not name are different, or that the last one of equal keys
    is the one that counts."""
    return shape.minimum > len(shape.required) + 1 or any(
        other.maximum is not None or any(node not in (TRUE, FALSE) for _, node in other.regions)
        for other in shape.negated
    )


def _special(shape: ObjectShape, some: Sequence[Region]) -> list[Region]:
    """Those of ``some``, other keys of which there must be one each, whose values not all keys like them have."""
    if len(shape.regions) == 1:
        return [region for region in some if region[1] != shape.regions[0][1]]
    return [
        (keys, node)
        for keys, node in some
        if any(value != node and not (keys & language).is_empty() for language, value in shape.regions)
    ]


def _few(keys: StringLanguage) -> list[str]:
    """All strings of a language of a few."""
    return keys.finite_values(MAX_FEW_KEYS) or []


def _with_few_named(shape: ObjectShape) -> tuple[ObjectShape, list[Others]]:
    """The same with names for the keys of every region that has only a few, and the regions that are left: of these
    there is always one more key."""
    while True:
        regions = _regions(shape)
        few = sorted({name for language, _, _ in regions for name in _few(language)})
        if not few:
            break
        nodes = {name: value_of(shape, name) for name in few}
        shape = shape._replace(properties={**shape.properties, **nodes}, mentioned=shape.mentioned.union(few))
    if shape.minimum > MAX_FEW_KEYS and any(language.dfa().is_finite() for language, _, _ in regions):
        raise BudgetExceeded(
            f"at least {shape.minimum} keys out of finitely many that are not named", keyword="minProperties"
        )
    return shape, regions


def _regions(shape: ObjectShape) -> list[Others]:
    """Keys that are not named, by what they must satisfy in a shape and in every one that it excludes."""
    names = dict.fromkeys(shape.properties)
    for other in shape.negated:
        names.update(dict.fromkeys(other.properties))
    regions: list[Others] = [
        (language, node, ()) for language, node in other_keys(shape.regions, names) if node != FALSE
    ]
    for other in shape.negated:
        if len(other.regions) == 1:
            regions = [(language, node, (*nodes, other.regions[0][1])) for language, node, nodes in regions]
            continue
        split = [
            (language & keys, node, (*nodes, value))
            for language, node, nodes in regions
            for keys, value in other.regions
        ]
        regions = [region for region in split if not region[0].is_empty()]
    return regions


def other_keys(regions: Iterable[Region], names: Iterable[str]) -> list[Region]:
    """The regions without the named keys."""
    named = StringLanguage.excluding(names) if names else ANY_STRING
    found = [(language, node) for language, node in regions]
    if len(found) == 1:
        return [(named, found[0][1])]
    return [(language & named, node) for language, node in found]


class State(NamedTuple):
    """What has been written, as far as it matters.

    ``position``: how many of the keys with a place are behind; ``written``: which of those without one have been
    written (bits). ``members``: how many so far, capped. ``open``: clauses not yet decided. ``unbroken``: the excluded
    shapes that the object still has, with their undecided clauses.
    """

    position: int
    written: int
    members: int
    open: frozenset[Clause]
    unbroken: tuple[tuple[int, frozenset[Clause]], ...]


class _Automaton:
    """The general case, state by state, as far as states are reached."""

    def __init__(self, writer: ObjectWriter, shape: ObjectShape) -> None:
        self.writer = writer
        remembers = _counts_unnamed(shape)
        shape, self._others = _with_few_named(shape) if remembers else (shape, _regions(shape))
        self._remembers = remembers and bool(self._others)
        self.shape = shape
        self.negated = shape.negated
        self.ordered, self.unordered = self._places()
        self.keyword = (
            "properties"
            if len(self.unordered) > MAX_UNORDERED
            else "not"
            if shape.negated
            else "minProperties"
            if shape.minimum
            else "maxProperties"
            if shape.maximum is not None
            else "dependentRequired"
        )
        limits = [shape.minimum]
        for limited in (shape, *shape.negated):
            limits.append(limited.minimum)
            if limited.maximum is not None:
                limits.append(limited.maximum + 1)
        self.count_limit = max(limits)
        self.edges: list[Edge] = []
        self.numbers: dict[tuple[State, bool], int] = {}
        self.pending: list[tuple[State, bool]] = []
        self._members: dict[object, Expression] = {}
        self._excluded: dict[str, tuple[Node, ...]] = {}  # by key: its values in the excluded shapes
        self._told: dict[tuple[Node, tuple[Node, ...], tuple[int, ...]], list[tuple[Node, frozenset[int]]]] = {}
        self._breakable = [self._breakable_until(other) for other in self.negated]
        self._decisions: dict[tuple[frozenset[Clause], str, bool], frozenset[Clause] | None] = {}
        self._concerned: dict[str, set[int]] = {}  # by key: the excluded shapes with a clause about it
        for j, other in enumerate(self.negated):
            for name in other.required.union(name for clause in other.clauses for name, _ in clause):
                self._concerned.setdefault(name, set()).add(j)

    def _places(self) -> tuple[list[str], list[str]]:
        """The named keys that have a place, in order, and those that have none."""
        names = dict.fromkeys(self.shape.properties)
        for other in self.negated:
            names.update(dict.fromkeys(other.properties))
        possible = [name for name in names if value_of(self.shape, name) != FALSE]
        if self.writer.options.order == "any":
            return [], possible
        placed = self.shape.properties.keys() - self.shape.mentioned
        free = [name for name in possible if name not in placed]
        if len(free) > MAX_UNORDERED:
            return [name for name in possible if name in placed] + free, []
        return [name for name in possible if name in placed], free

    def expression(self) -> Expression:
        """Walk all states that can be reached, then hand the automaton over."""
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
            else:
                self._expand(state, number)
            if len(self.edges) > limit:
                raise BudgetExceeded(f"an object needs an automaton of more than {limit} edges", keyword=self.keyword)
        self.writer.spend(len(self.edges), self.keyword)
        return text.object(2 + len(self.numbers), (1,), self.edges, self.keyword if self._remembers else None)

    def _start(self) -> State | None:
        """Before the first member: of the keys that are impossible it is known that they are not there."""
        shape = self.shape
        state = State(
            0,
            0,
            0,
            shape.clauses.union(frozenset([(name, True)]) for name in shape.required),
            tuple(
                (j, other.clauses.union(frozenset([(name, True)]) for name in other.required))
                for j, other in enumerate(self.negated)
            ),
        )
        possible = {*self.ordered, *self.unordered}
        impossible = {name for other in (shape, *self.negated) for name in other.properties if name not in possible}
        for name in impossible:
            decided = self._decided(state, name, False)
            if decided is None:
                return None
            state = state._replace(open=decided[0], unbroken=decided[1])
        return state

    def _number(self, state: State, done: bool) -> int:
        key = (state, done)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = 2 + len(self.numbers)
            self.pending.append(key)
        return number

    def _expand(self, state: State, number: int) -> None:
        """The edges of a state in which a member must follow."""
        counted = min(state.members + 1, self.count_limit)
        room = self.shape.maximum is None or state.members < self.shape.maximum
        if state.position < len(self.ordered):
            name = self.ordered[state.position]
            if room:
                self._write(state, number, name, state.position + 1, state.written, counted)
            skipped = self._decided(state, name, False)
            if skipped is not None:
                after = State(state.position + 1, state.written, state.members, *skipped)
                if not self._is_dead(after):
                    self.edges.append((number, self.writer.grammar.empty(), self._number(after, False)))
        elif room:
            for i, name in enumerate(self.unordered):
                if not state.written >> i & 1:
                    self._write(state, number, name, state.position, state.written | 1 << i, counted)
            for language, node, excluded in self._others:
                for value, avoided in self._values(node, excluded, state.unbroken):
                    left = tuple([other for other in state.unbroken if other[0] not in avoided])
                    after = state._replace(members=counted, unbroken=left)
                    self.edges.append((number, self._member(language, value), self._number(after, True)))

    def _write(self, state: State, number: int, name: str, position: int, written: int, members: int) -> None:
        """The edges that write the key ``name``, to states with what is written then."""
        decided = self._decided(state, name, True)
        if decided is None:
            return
        open_, unbroken = decided
        excluded = self._excluded.get(name)
        if excluded is None:
            excluded = self._excluded[name] = tuple([value_of(other, name) for other in self.negated])
        for value, avoided in self._values(value_of(self.shape, name), excluded, unbroken):
            left = tuple([other for other in unbroken if other[0] not in avoided])
            target = State(position, written, members, open_, left)
            if not self._is_dead(target):
                self.edges.append((number, self._member(name, value), self._number(target, True)))

    def _values(
        self, node: Node, excluded: tuple[Node, ...], unbroken: tuple[tuple[int, frozenset[Clause]], ...]
    ) -> list[tuple[Node, frozenset[int]]]:
        """What a member's value may be, with the excluded shapes it then breaks."""
        key = node, excluded, tuple([j for j, _ in unbroken])
        found = self._told.get(key)
        if found is None:
            by_node: dict[Node, list[int]] = {}
            for j in key[2]:
                by_node.setdefault(excluded[j], []).append(j)
            found = self._told[key] = [
                (value, frozenset(j for other in others for j in by_node[other]))
                for value, others in told_apart(self.writer.algebra, node, by_node)
            ]
        return found

    def _decided(
        self, state: State, name: str, present: bool
    ) -> tuple[frozenset[Clause], tuple[tuple[int, frozenset[Clause]], ...]] | None:
        """What is open once it is known whether the key ``name`` is there; None if that must not be."""
        open_ = self._after(state.open, name, present)
        if open_ is None:
            return None
        concerned = self._concerned.get(name)
        if concerned is None:
            return open_, state.unbroken
        unbroken = []
        for excluded in state.unbroken:
            j, clauses = excluded
            if j in concerned:
                left = self._after(clauses, name, present)
                if left is None:
                    continue
                excluded = (j, left)
            unbroken.append(excluded)
        return open_, tuple(unbroken)

    def _after(self, clauses: frozenset[Clause], name: str, present: bool) -> frozenset[Clause] | None:
        """`decide`, of which many states ask the same."""
        if not clauses:
            return clauses
        key = clauses, name, present
        if key not in self._decisions:
            self._decisions[key] = decide(clauses, name, present)
        return self._decisions[key]

    def _breakable_until(self, other: ObjectShape) -> int:
        """The position behind which only the presence of keys can still tell an object from ``other``."""
        if other.minimum or other.maximum is not None or any(node != TRUE for _, node in other.regions):
            return len(self.ordered) + 1
        if any(value_of(other, name) != TRUE for name in self.unordered):
            return len(self.ordered) + 1
        return max((i + 1 for i, name in enumerate(self.ordered) if value_of(other, name) != TRUE), default=0)

    def _is_dead(self, state: State) -> bool:
        """Whether some excluded shape can no longer be broken."""
        return any(not clauses and self._breakable[j] <= state.position for j, clauses in state.unbroken)

    def _accepts(self, state: State) -> bool:
        """Whether the object may end here: no other named key follows."""
        if state.members < self.shape.minimum:
            return False
        # The keys that clauses are still about are all absent: one holds if it asks for an absence.
        if any(all(present for _, present in clause) for clause in state.open):
            return False
        for j, clauses in state.unbroken:
            if any(all(present for _, present in clause) for clause in clauses):
                continue
            least, most = self.negated[j].minimum, self.negated[j].maximum
            if state.members >= least and (most is None or state.members <= most):
                return False
        return True

    def _member(self, key: str | StringLanguage, value: Node) -> Expression:
        found = self._members.get((key, value))
        if found is None:
            text, body = self.writer.text, self.writer.value(value)
            found = text.named_member(key, body) if isinstance(key, str) else text.member(key, body)
            self._members[key, value] = found
        return found


def decide(clauses: frozenset[Clause], name: str, present: bool) -> frozenset[Clause] | None:
    """The clauses once it is known whether ``name`` is there; None if one of them fails."""
    holds, fails = (name, present), (name, not present)
    concerned = [clause for clause in clauses if fails in clause or holds in clause]
    if not concerned:
        return clauses
    left = [clause - {fails} for clause in concerned if holds not in clause]
    return clauses.difference(concerned).union(left) if all(left) else None
