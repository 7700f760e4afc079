"""∧ and ¬ on object shapes (`form.ObjectShape`), and what makes a shape empty.

A shape is taken apart into *conditions* (a key's value, a key's presence, a count, …). Its negation says that one of
them fails. Where that is one alternative it becomes a positive shape; where it is many it stays whole in ``negated``,
so that excluding n schemas costs n entries and not the product of their alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from dotllm.errors import BudgetExceeded
from dotllm.languages.json_schema.algebra.form import (
    ALL_NAMED,
    ANY_OBJECT,
    ANY_REGIONS,
    ANY_STRING,
    FALSE,
    NO_REGIONS,
    NO_STRING,
    TRUE,
    Clause,
    Named,
    Node,
    ObjectShape,
    Region,
)

MAX_CLAUSES = 64
MAX_REGIONS = 64

_TRUE_ONLY = frozenset({TRUE})


class Nodes(Protocol):
    """What shapes need of the algebra of nodes."""

    def both(self, a: Node, b: Node) -> Node:
        """a ∧ b."""
        ...

    def complement(self, a: Node) -> Node:
        """¬ a."""
        ...

    def is_empty(self, a: Node) -> bool:
        """True: no value satisfies ``a``. False: some does, or it is not known."""
        ...

    def are_apart(self, a: Node, b: Node) -> bool:
        """``is_empty`` of ``both``."""
        ...

    def is_within(self, a: Node, b: Node) -> bool:
        """``is_empty`` of ``a`` and not ``b``."""
        ...

    def is_compound(self, a: Node) -> bool:
        """Whether ``a`` was made by `both` or `complement`, so that its emptiness is worth a look."""
        ...

    def empty_among(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Those of ``nodes`` that are compound and empty; no more is looked at than is asked for."""
        ...

    def conditions_of(self, shape: ObjectShape) -> list[Condition]:
        """`conditions`, which are asked for again and again."""
        ...

    def spend(self, steps: int) -> None:
        """Count work against the budget."""
        ...


class Condition(NamedTuple):
    """One way to break a shape: ``kind`` with what it needs.

    ``value``: ``name`` is present with a value outside ``node``; ``required``: ``name`` is absent; ``either``: one of
    these two; ``clause``: ``clause`` fails; ``region``: a member of region ``number`` has a value outside ``node``;
    ``minimum``, ``maximum``: fewer or more than ``number`` members.
    """

    kind: str
    name: str = ""
    node: Node = TRUE
    clause: Clause = frozenset()
    number: int = 0


def value_of(shape: ObjectShape, name: str) -> Node:
    """What the value of key ``name`` must satisfy."""
    node = shape.properties.get(name)
    return region_value(shape.regions, name) if node is None else node


def region_value(regions: tuple[Region, ...], name: str) -> Node:
    """The same for a key that is not a named property."""
    if len(regions) > 1:
        for language, node in regions:
            if language.contains(name):
                return node
    return regions[0][1]


def meet(nodes: Nodes, a: ObjectShape, b: ObjectShape) -> ObjectShape | None:
    """a ∧ b, None if it is seen to be empty. Keys keep the order of ``a``; those only ``b`` names follow."""
    if a is ANY_OBJECT or a is b:
        return b
    if b is ANY_OBJECT:
        return a
    nodes.spend(2 + len(a.properties) + len(b.properties))
    fresh = tuple([shape for shape in b.negated if shape not in a.negated]) if b.negated else ()
    only_excludes = _only_excludes(b)
    if (
        only_excludes
        and not a.mentioned
        and len(b.mentioned) == len(b.properties)
        and b.mentioned <= a.properties.keys()
    ):
        return _without_decided(nodes, a._replace(negated=a.negated + fresh), fresh)  # all else stays as it is
    properties = _met_properties(nodes, a, b)
    mentioned = a.mentioned | b.mentioned
    if mentioned and not a.mentioned and len(b.mentioned) == len(b.properties):
        mentioned = mentioned.difference(a.properties)  # the keys stand as they should
    elif mentioned:
        declared = [name for name in a.properties if name not in a.mentioned] if a.mentioned else [*a.properties]
        if len(b.mentioned) < len(b.properties):
            declared += [name for name in b.properties if name not in b.mentioned]
        mentioned = mentioned.difference(declared)
        if [*islice(properties, len(declared))] != declared:  # nearly always they come first already
            properties = {name: properties[name] for name in dict.fromkeys((*declared, *properties))}
    maximum = a.maximum if b.maximum is None else b.maximum if a.maximum is None else min(a.maximum, b.maximum)
    met = ObjectShape(
        properties,
        meet_regions(nodes, a.regions, b.regions),
        a.required | b.required,
        a.clauses | b.clauses,
        max(a.minimum, b.minimum),
        maximum,
        a.negated + fresh,
        mentioned,
        _both_named(a.named, b.named),
    )
    if only_excludes:
        return _without_decided(nodes, met, fresh)  # all else has been looked at when ``a`` was made
    return simplified(nodes, met)


def _met_properties(nodes: Nodes, a: ObjectShape, b: ObjectShape) -> dict[str, Node]:
    """The values of all keys that one of two shapes names: those of ``a``, then those only ``b`` names."""
    theirs = b.properties
    if b.regions is ANY_REGIONS:  # nearly always; then what ``b`` does not name stays as it is
        properties = dict(a.properties)
        few, many = (theirs, properties) if len(theirs) < len(properties) else (properties, theirs)
        for name in [name for name in few if name in many]:
            properties[name] = nodes.both(properties[name], theirs[name])
    else:
        properties = {name: nodes.both(node, value_of(b, name)) for name, node in a.properties.items()}
    for name, node in theirs.items():
        if name not in properties:
            properties[name] = node if a.regions is ANY_REGIONS else nodes.both(region_value(a.regions, name), node)
    return properties


def _only_excludes(shape: ObjectShape) -> bool:
    """Whether the shape says nothing but what an object must not be."""
    return (
        shape.regions is ANY_REGIONS
        and not shape.required
        and not shape.clauses
        and not shape.minimum
        and shape.maximum is None
        and {*shape.properties.values()} <= _TRUE_ONLY
        and shape.named is None
    )


def _both_named(a: Named | None, b: Named | None) -> Named | None:
    """The keys that one of two shapes names."""
    if a is None or b is None or a == b:
        return a or b
    if ANY_STRING in (a.keys, b.keys):
        return ALL_NAMED
    return Named(
        a.names | b.names, b.keys if a.keys is NO_STRING else a.keys if b.keys is NO_STRING else a.keys | b.keys
    )


def closed(nodes: Nodes, shape: ObjectShape) -> ObjectShape | None:
    """The objects of ``shape`` that have no keys but those it names (``named``); None if it is seen to be empty.

    This is not a part of the algebra: what an object must not be (``not``, ``if``, the other branches of ``oneOf``) is
    excluded as the schema says it, and the schemas that an object must all satisfy name its keys together.
    """
    named = shape.named
    if named is None:
        return shape
    shape = shape._replace(named=None)
    if named.keys == ANY_STRING:
        return shape
    properties = {
        name: node if name in named.names or named.keys.contains(name) else FALSE
        for name, node in shape.properties.items()
    }
    regions: tuple[Region, ...] = ((named.keys, TRUE), (~named.keys, FALSE))
    regions = NO_REGIONS if named.keys is NO_STRING else meet_regions(nodes, shape.regions, regions)
    return simplified(nodes, shape._replace(properties=properties, regions=regions))


def meet_regions(nodes: Nodes, a: tuple[Region, ...], b: tuple[Region, ...]) -> tuple[Region, ...]:
    """The common refinement of two partitions."""
    if a is ANY_REGIONS:
        return b
    if b is ANY_REGIONS or a == b:
        return a
    if len(a) == 1:
        (_, x), out = a[0], b
        return tuple((language, nodes.both(x, node)) for language, node in out)
    if len(b) == 1:
        (_, x), out = b[0], a
        return tuple((language, nodes.both(node, x)) for language, node in out)
    merged: dict[Node, Region] = {}
    for first, x in a:
        for second, y in b:
            language = first & second
            if not language.is_empty():
                node = nodes.both(x, y)
                merged[node] = (merged[node][0] | language, node) if node in merged else (language, node)
    if len(merged) > MAX_REGIONS:
        raise BudgetExceeded(f"keys fall into more than {MAX_REGIONS} groups", keyword="patternProperties")
    return tuple(merged.values())


def simplified(nodes: Nodes, shape: ObjectShape) -> ObjectShape | None:
    """The same shape with what follows made explicit; None if it is seen to be empty."""
    properties, required, clauses = shape.properties, shape.required, shape.clauses
    needed = [properties[name] for name in required]
    if FALSE in needed or any(True for _ in nodes.empty_among(needed)):
        return None
    empty = set(nodes.empty_among(properties.values()))
    if empty:
        properties = {name: FALSE if node in empty else node for name, node in properties.items()}
    if clauses:
        known = _propagated(properties, required, clauses)
        if known is None:
            return None
        properties, required, clauses = known
    minimum, maximum = shape.minimum, shape.maximum
    if minimum or maximum is not None:
        possible = None
        if all(node == FALSE for _, node in shape.regions):
            possible = sum(node != FALSE for node in properties.values())
        if maximum is not None and possible is not None and possible <= maximum:
            maximum = None
        if minimum <= len(required):
            minimum = 0
        if (possible is not None and possible < minimum) or (
            maximum is not None and maximum < max(minimum, len(required))
        ):
            return None
    shape = ObjectShape(
        properties, shape.regions, required, clauses, minimum, maximum, shape.negated, shape.mentioned, shape.named
    )
    return _without_decided(nodes, shape, shape.negated) if shape.negated else shape


def _propagated(
    properties: dict[str, Node], required: frozenset[str], clauses: Iterable[Clause]
) -> tuple[dict[str, Node], frozenset[str], frozenset[Clause]] | None:
    """Unit propagation: what the clauses say about single keys; None if they contradict."""
    properties, needed, left = dict(properties), set(required), set(clauses)
    changed = True
    while changed:
        changed = False
        for clause in list(left):
            open_literals = []
            satisfied = False
            for name, present in clause:
                if name in needed:
                    satisfied |= present
                elif properties[name] == FALSE:
                    satisfied |= not present
                else:
                    open_literals.append((name, present))
            if not satisfied and len(open_literals) == len(clause) > 1:
                continue
            left.discard(clause)
            changed = True
            if satisfied:
                continue
            if not open_literals:
                return None
            if len(open_literals) > 1:
                left.add(frozenset(open_literals))
                continue
            name, present = open_literals[0]
            if present:
                needed.add(name)
            else:
                properties[name] = FALSE
    return properties, frozenset(needed), frozenset(left)


# -- negation --------------------------------------------------------------------------------------------------------


def conditions(shape: ObjectShape) -> list[Condition]:
    """Every single way to break ``shape`` (whose ``negated`` is not looked at)."""
    out: list[Condition] = []
    for name, node in shape.properties.items():
        if name in shape.required:
            out.append(Condition("required", name) if node == TRUE else Condition("either", name, node))
        elif node != TRUE:
            out.append(Condition("value", name, node))
    out.extend(Condition("region", "", node, number=i) for i, (_, node) in enumerate(shape.regions) if node != TRUE)
    out.extend(Condition("clause", clause=clause) for clause in sorted(shape.clauses, key=sorted))
    if shape.minimum:
        out.append(Condition("minimum", number=shape.minimum))
    if shape.maximum is not None:
        out.append(Condition("maximum", number=shape.maximum))
    return out


def negation(nodes: Nodes, shape: ObjectShape) -> ObjectShape | None:
    """¬ of the positive part of ``shape``, as one shape; None if nothing is left."""
    found = conditions(shape)
    if not found:
        return None
    if len(found) == 1 and found[0].kind != "region":
        return broken(nodes, found[0])
    presence = [_presence(condition) for condition in found]
    if None not in presence:
        clauses = _distribute([frozenset([(name, not there)]) for name, there in c or ()] for c in presence)
        if clauses is not None:
            return of_clauses(clauses, shape.properties)
    return mentioning(dict.fromkeys(shape.properties, TRUE))._replace(negated=(shape._replace(negated=(), named=None),))


def mentioning(properties: dict[str, Node], required: Iterable[str] = ()) -> ObjectShape:
    """A shape about some keys that does not give them a place."""
    return ObjectShape(properties, ANY_REGIONS, frozenset(required), mentioned=frozenset(properties))


def broken(nodes: Nodes, condition: Condition) -> ObjectShape:
    """The shape of the objects that break ``condition`` (not for regions)."""
    kind, name = condition.kind, condition.name
    if kind == "value":
        return mentioning({name: nodes.complement(condition.node)}, [name])
    if kind == "required":
        return mentioning({name: FALSE})
    if kind == "either":
        return mentioning({name: nodes.complement(condition.node)})
    if kind == "clause":
        absent = {key: FALSE if present else TRUE for key, present in sorted(condition.clause)}
        needed = frozenset(key for key, present in condition.clause if not present)
        return mentioning(absent, needed)
    if kind == "minimum":
        return ObjectShape({}, ANY_REGIONS, maximum=condition.number - 1)
    assert kind == "maximum", kind
    return ObjectShape({}, ANY_REGIONS, minimum=condition.number + 1)


def _presence(condition: Condition) -> Clause | None:
    """The condition as a clause that fails, None if it is about more than which keys are there."""
    if condition.kind == "required":
        return frozenset([(condition.name, True)])
    if condition.kind == "value" and condition.node == FALSE:
        return frozenset([(condition.name, False)])
    return condition.clause if condition.kind == "clause" else None


def _without_decided(nodes: Nodes, shape: ObjectShape, fresh: tuple[ObjectShape, ...]) -> ObjectShape | None:
    """Look at the ``fresh`` ones of the negated shapes in the light of the positive part: one may be excluded anyway,
    or impossible to avoid, or leave a single way to avoid it, which is then made part of the shape."""
    positive = shape._replace(negated=())
    kept = list(shape.negated[: len(shape.negated) - len(fresh)])
    for other in fresh:
        possible: list[Condition] = []
        avoided = False
        # Keys that must be there come first: most often one of them tells the shapes apart.
        all_conditions = nodes.conditions_of(other)
        nodes.spend(4 + len(all_conditions))
        if positive.required:
            all_conditions = sorted(all_conditions, key=lambda condition: condition.name not in positive.required)
        for condition in all_conditions:
            verdict = _can_break(nodes, positive, other, condition)
            if verdict is True:
                avoided = True
                break
            if verdict is None:
                possible.append(condition)
        if avoided:
            continue
        if not possible:
            return None
        if len(possible) == 1 and possible[0].kind != "region":
            rest = positive._replace(negated=tuple(s for s in shape.negated if s is not other))
            return meet(nodes, rest, broken(nodes, possible[0]))
        kept.append(_restricted(other, possible))
    return positive._replace(negated=tuple(kept))


def _can_break(nodes: Nodes, shape: ObjectShape, other: ObjectShape, condition: Condition) -> bool | None:
    """Whether an object of ``shape`` breaks ``condition`` of ``other``: True always, False never, None sometimes."""
    kind, name, node = condition.kind, condition.name, condition.node
    if kind in ("value", "required", "either"):
        here = value_of(shape, name)
        if here == FALSE:
            return kind != "value"
        needed = name in shape.required
        if kind == "required":
            return False if needed else None
        if _within(nodes, here, node):
            return False if needed or kind == "value" else None
        return True if (needed or kind == "either") and nodes.are_apart(here, node) else None
    if kind == "region":
        return _can_break_region(nodes, shape, other, condition)
    if kind == "clause":
        verdicts = [
            present if key in shape.required else (not present) if value_of(shape, key) == FALSE else None
            for key, present in condition.clause
        ]
        return False if any(verdicts) else None if None in verdicts else True
    least = max(shape.minimum, len(shape.required))
    if kind == "minimum":
        if least >= condition.number:
            return False
        return True if shape.maximum is not None and shape.maximum < condition.number else None
    if shape.maximum is not None and shape.maximum <= condition.number:
        return False
    return True if least > condition.number else None


def _can_break_region(nodes: Nodes, shape: ObjectShape, other: ObjectShape, condition: Condition) -> bool | None:
    language, node = other.regions[condition.number]
    verdict: bool | None = False
    for name, here in shape.properties.items():
        if name in other.properties or here == FALSE or (len(other.regions) > 1 and not language.contains(name)):
            continue
        if not _within(nodes, here, node):
            if name in shape.required and nodes.are_apart(here, node):
                return True
            verdict = None
    if any(here != FALSE and not _within(nodes, here, node) for _, here in shape.regions):
        verdict = None
    return verdict


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    """Whether every value of ``a`` is seen to be one of ``b``."""
    return a == b or b == TRUE or (b != FALSE and nodes.is_within(a, b))


def _restricted(shape: ObjectShape, kept: list[Condition]) -> ObjectShape:
    """``shape`` with only some of its conditions."""
    values = {c.name: c.node for c in kept if c.kind in ("value", "either")}
    regions = {c.number for c in kept if c.kind == "region"}
    return ObjectShape(
        {name: values.get(name, TRUE) for name in shape.properties},
        tuple((language, node if i in regions else TRUE) for i, (language, node) in enumerate(shape.regions))
        if regions
        else ANY_REGIONS,
        frozenset(c.name for c in kept if c.kind in ("required", "either")),
        frozenset(c.clause for c in kept if c.kind == "clause"),
        max((c.number for c in kept if c.kind == "minimum"), default=0),
        min((c.number for c in kept if c.kind == "maximum"), default=None),
    )


# -- union -----------------------------------------------------------------------------------------------------------


def united(shapes: list[ObjectShape]) -> tuple[ObjectShape, ...]:
    """The union, with everything that is only about which keys are there merged into one shape."""
    if len(shapes) < 2:
        return tuple(shapes)
    presence: list[frozenset[Clause]] = []
    names: dict[str, Node] = {}
    declared: set[str] = set()
    out: list[ObjectShape] = []
    for shape in shapes:
        if shape == ANY_OBJECT:
            return (ANY_OBJECT,)
        clauses = _as_clauses(shape)
        if clauses is not None and len(presence) < MAX_CLAUSES:
            presence.append(clauses)
            names.update(dict.fromkeys(shape.properties, TRUE))
            declared.update(shape.properties.keys() - shape.mentioned)
        elif len(out) > MAX_CLAUSES or shape not in out:
            out.append(shape)
    if presence:
        merged = _distribute(presence)
        merged_shapes = [of_clauses(merged, names)] if merged is not None else [of_clauses(c) for c in presence]
        out[:0] = [shape._replace(mentioned=shape.mentioned - declared) for shape in merged_shapes]
    return tuple(out)


def _as_clauses(shape: ObjectShape) -> frozenset[Clause] | None:
    """A shape that is only about which keys are there, as clauses; None for any other."""
    if shape.regions is not ANY_REGIONS or shape.minimum or shape.maximum is not None or shape.negated:
        return None
    if shape.named is not None:  # which keys there may be besides is another question
        return None
    units: list[Clause] = [frozenset([(name, True)]) for name in shape.required]
    for name, node in shape.properties.items():
        if node == FALSE:
            units.append(frozenset([(name, False)]))
        elif node != TRUE:
            return None
    return shape.clauses.union(units)


def _distribute(alternatives: Iterable[Iterable[Clause]]) -> frozenset[Clause] | None:
    """A union of conjunctions of clauses, as one conjunction of clauses; None if that is too large."""
    out: set[Clause] | None = None
    for conjunction in alternatives:
        if out is None:
            out = set(conjunction)
            continue
        merged = {a | b for a in out for b in conjunction}
        merged = {c for c in merged if not any((name, not present) in c for name, present in c)}
        if len(merged) > MAX_CLAUSES * MAX_CLAUSES:
            return None
        out = {c for c in merged if not any(d < c for d in merged)}
        if len(out) > MAX_CLAUSES:
            return None
    return frozenset(out or ())


def of_clauses(clauses: frozenset[Clause], order: dict[str, Node] | None = None) -> ObjectShape:
    """The shape of the objects that satisfy ``clauses``; keys in ``order``, then sorted."""
    properties = dict.fromkeys(order or (), TRUE)
    for name in sorted({name for clause in clauses for name, _ in clause}):
        properties.setdefault(name, TRUE)
    units = [next(iter(clause)) for clause in clauses if len(clause) == 1]
    properties.update({name: FALSE for name, present in units if not present})
    shape = mentioning(properties, (name for name, present in units if present))
    return shape._replace(clauses=frozenset(clause for clause in clauses if len(clause) > 1))
