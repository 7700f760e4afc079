"""Object constraints → automata over members: the common case, and the choice between the others.

Declared keys come in declared order, each at most once; all other keys follow, in any order. The automaton is two
chains. In state *next(i)* a member from ``i`` on must follow (after a comma); in state *done(i)* one before ``i`` has
just been written. So n optional properties cost 2n states, and every member is written once. Named keys without a
declared place are an unordered sequence (`Grammar.unordered`) at the end; with ``order="any"`` all keys are.

Counts, clauses and negated constraints need states for what is still open (`member_automaton`). With ``order="any"``
such a constraint first becomes a union of constraints without them, if that is possible (`expansion`).

A key that the schema does not name may be written twice. This is harmless if the schema only limits its value. If the
schema counts such keys, or demands a value for one of them, guides remember the keys (`Grammar.unique_open`). If there
are only a few such keys, they are treated as named.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.normal_form import FALSE, KeyClass, ObjectConstraint
from dotllm.languages.json_schema.objects.expansion import expanded
from dotllm.languages.json_schema.objects.member_automaton import Edge, general_expression
from dotllm.languages.json_schema.objects.unnamed_keys import few_keys, special, without_named
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.writer import ObjectWriter


def object_expression(writer: ObjectWriter, stated: ObjectConstraint) -> Expression:
    """The texts of the objects of a constraint."""
    constraint = objects.closed(writer.algebra, stated)
    if constraint is None:
        return writer.grammar.never()
    if not (constraint.clauses or constraint.negated or constraint.minimum > 1 or constraint.maximum is not None):
        return _chains(writer, constraint, ())
    if writer.options.order == "any":
        plain = expanded(writer.algebra, constraint, by_value=True) or expanded(
            writer.algebra, constraint, by_value=False
        )
        if plain is not None and not any(few_keys(keys) for one, some in plain for keys, _ in special(one, some)):
            return writer.grammar.alt([_chains(writer, one, others) for one, others in plain])
    return general_expression(writer, constraint)


def _chains(writer: ObjectWriter, constraint: ObjectConstraint, some: Sequence[KeyClass]) -> Expression:
    """The common case: properties, required and what other keys may have; ``some`` of these must be there, one each."""
    grammar, text = writer.grammar, writer.text
    properties, required = constraint.properties, constraint.required
    possible = properties
    if FALSE in properties.values():
        if any(properties[name] == FALSE for name in required):
            return grammar.never()
        possible = {name: node for name, node in properties.items() if node != FALSE}
    others = [
        text.member(language, writer.value(node))
        for language, node in without_named(constraint.key_classes, properties)
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
    if last_required < 0 and not constraint.minimum:
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
    return text.object(end + 2, (1,), edges, "not" if special(constraint, some) else None)
