"""Turns object constraints into automata over members: the common case, and the choice between the other cases.

Declared keys come in declared order, each at most once; all other keys follow, in any order. The automaton consists of
two chains. In state *next(i)* a member from ``i`` on must follow (after a comma); in state *done(i)* a member before
``i`` has just been written. So n optional properties cost 2n states, and every member occurs once. Named keys without a
declared place form an unordered sequence (`Grammar.unordered`) at the end; with ``order="any"`` all keys do.

Counts, clauses and negated constraints need states for what is still open (`member_automaton`). With ``order="any"``, a
constraint with any of these first becomes a union of constraints without them, if possible (`expansion`).

A key that the schema does not name may be written twice. This is harmless if the schema only limits its value. If the
schema counts such keys, or demands a value for one of them, guides remember the keys (`Grammar.unique_open`). If there
are only a few such keys, they are treated as named.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.normal_form import FALSE, KeyClass, ObjectConstraint
from dotllm.languages.json_schema.objects.expansion import counts_members, expanded
from dotllm.languages.json_schema.objects.member_automaton import Edge, general_expression
from dotllm.languages.json_schema.objects.unnamed_keys import few_keys, special, unnamed_keys, without_named
from dotllm.languages.json_schema.writer import Writer

LONGEST_LINE = 2048
LONGEST_RUN = 64
"""A line of more than `LONGEST_LINE` members becomes a line of runs of `LONGEST_RUN` members each."""


def object_expression(writer: Writer, stated: ObjectConstraint) -> Expression:
    """The texts of the objects of a constraint."""
    constraint = objects.closed(writer.algebra, stated, strictly=writer.options.additional_properties is False)
    if constraint is None:
        return writer.grammar.never()
    if not (constraint.clauses or constraint.negated or counts_members(constraint)):
        return _chains(writer, constraint, ())
    if writer.options.order != "any":
        return general_expression(writer, constraint)
    plain = _expanded(writer, constraint)
    if plain is not None:
        return plain
    try:
        return general_expression(writer, constraint)
    except BudgetExceededError:
        parts = _expanded(writer, constraint, counted=True)
        if parts is None:
            raise
        return parts


def _expanded(writer: Writer, constraint: ObjectConstraint, *, counted: bool = False) -> Expression | None:
    """The union that `expansion` makes of a constraint with keys in any order; None if no union helps."""
    for by_value in (True, False):
        parts = expanded(writer.algebra, constraint, by_value=by_value, counted=counted)
        if parts is not None and not any(
            few_keys(keys) for part, classes in parts for keys, _ in special(part, classes)
        ):
            written = (
                general_expression(writer, part) if counts_members(part) else _chains(writer, part, classes)
                for part, classes in parts
            )
            return writer.grammar.alt([*written])
    return None


Line = list[tuple[Expression, bool]]
"""Members in their order, and whether each is required."""


def _line(writer: Writer, members: Line) -> Line:
    """``members``, or runs of them if there are very many. Each run is a rule and has at least one of its members.

    Each of n states with optional members reaches all later ones, so the states would take n² / 2 words. A run is one
    step for the members before it.
    """
    while len(members) > LONGEST_LINE:  # bounded: by the depth of a tree
        members = [_run(writer, members[i : i + LONGEST_RUN]) for i in range(0, len(members), LONGEST_RUN)]
    return members


def _run(writer: Writer, members: Line) -> tuple[Expression, bool]:
    """The texts of at least one of ``members``, with all required ones; and whether any is required."""
    grammar, comma = writer.grammar, writer.text.comma
    last_required = max([i for i, (_, is_required) in enumerate(members) if is_required], default=-1)
    edges: list[Edge] = []  # next(i) is 2i, done(i) is 2i + 1
    for i, (member, is_required) in enumerate(members):
        edges.append((2 * i, member, 2 * i + 3))
        if not is_required:
            edges.append((2 * i, grammar.empty(), 2 * i + 2))
        if i:
            edges.append((2 * i + 1, comma, 2 * i))
    ends = [2 * i + 3 for i in range(max(last_required, 0), len(members))]
    rule = grammar.rule("members")
    grammar.define(rule, grammar.network(2 * len(members) + 2, 0, ends, edges))
    return grammar.call(rule), last_required >= 0


def _chains(writer: Writer, constraint: ObjectConstraint, classes: Sequence[KeyClass]) -> Expression:
    """The common case: properties, required keys, and other keys, with at least one key of each set in ``classes``."""
    grammar, text = writer.grammar, writer.text
    properties, required = constraint.properties, constraint.required
    possible = properties
    if FALSE in properties.values():
        if any(properties[name] == FALSE for name in required):
            return grammar.never()
        possible = {name: node for name, node in properties.items() if node != FALSE}
    others = [
        text.member(language, writer.value(node))
        for language, node in without_named(constraint.key_classes, constraint, writer.options.order)
        if node != FALSE
    ]
    values = writer.values(possible.values())
    members = list(zip(possible, text.named_members([*possible], values), strict=True))
    placed = members
    free: list[tuple[str, Expression]] = []
    if writer.options.order == "any":
        placed, free = free, members
    elif constraint.mentioned:
        placed = [member for member in members if member[0] not in constraint.mentioned]
        free = [member for member in members if member[0] in constraint.mentioned]
    line = _line(writer, [(member, name in required) for name, member in placed])
    n = len(line)
    last_required = max([i for i, (_, is_required) in enumerate(line) if is_required], default=-1)
    # States: 0 is the start, 1 the end, 2 + 2i next(i), 3 + 2i done(i). Keys without a place follow the last member.
    end = 2 + 2 * n
    skip, comma = grammar.empty(), text.comma
    edges: list[Edge] = [(0, skip, 2)]
    if free or classes:
        needed = [member for name, member in free if name in required] if required else []
        optional = [member for name, member in free if name not in required]
        if classes:
            needed += [
                text.member(unnamed_keys(language, constraint, writer.options.order), writer.value(node))
                for language, node in classes
            ]
        if needed:
            last_required = n
        edges.append((end, grammar.unordered(needed, optional, others, comma), 1))
    else:
        edges.extend((end, other, end + 1) for other in others)
    if last_required < 0 and not constraint.minimum:
        edges.append((0, skip, 1))
    for i, (member, is_required) in enumerate(line):
        place = 2 + 2 * i
        edges.append((place, member, place + 3))
        if not is_required:
            edges.append((place, skip, place + 2))
    for i in range(0 if others else 1, n + 1):
        done = 3 + 2 * i
        edges.append((done, comma, done - 1))
        if i > last_required:
            edges.append((done, skip, 1))
    writer.spend(len(edges) + 3 * len(placed) * (len(placed) > n), "properties")
    return text.object(end + 2, (1,), edges, "not" if special(constraint, classes) else None)
