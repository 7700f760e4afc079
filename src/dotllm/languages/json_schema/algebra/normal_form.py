"""The normal form of a schema: for each JSON type, which values of it are allowed.

Scalars are languages (sets closed under and, or, not). Arrays and objects are unions of *constraints*. A constraint is
a conjunction of conditions, each on one aspect (a member, an item, a count), and of constraints that must *not* hold.
So this is a disjunctive normal form, and ∧, ∨, ¬ stay inside it (`algebra`, `objects`, `arrays`). Children are nodes,
not forms: a form is one level deep, which is what makes recursion end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, NewType

from dotllm.languages.json_schema.numbers.number_language import NumberLanguage
from dotllm.languages.json_schema.strings.string_language import StringLanguage, are_many, together

Node = NewType("Node", int)
"""A schema or a boolean combination of schemas: a number that `algebra.Algebra` has given it."""

TRUE = Node(0)
"""The schema ``true``: every value."""
FALSE = Node(1)
"""The schema ``false``: no value."""

NULL_BIT, FALSE_BIT, TRUE_BIT = 1, 2, 4
ALL_CONSTANTS = NULL_BIT | FALSE_BIT | TRUE_BIT

Clause = frozenset[tuple[str, bool]]
"""At least one of these holds: the key is present (True) or absent (False)."""

KeyClass = tuple[StringLanguage, Node]
"""Members whose key is in the language (and is not a named property) have a value of the node."""


class Named(NamedTuple):
    """Keys that a schema names: one by one, and by patterns. ``listed``: it has ``properties``."""

    names: frozenset[str]
    keys: StringLanguage
    listed: bool


class ObjectConstraint(NamedTuple):
    """A conjunction of conditions on an object.

    ``properties``: the value of each key that the schema names, in declared order (never modified). ``key_classes``: a
    partition of all other keys; one key class means all of them, whatever its language. ``clauses``: conditions on
    which named keys are there; ``required`` are those with one key. ``negated``: constraints the object must not have;
    each is a constraint without ``negated``. ``mentioned``: the keys that are named, but not in a ``properties`` that
    holds, so that they have no declared place (``required`` without ``properties``, …).

    ``named`` is not a constraint of the schema, and no operation but ∧ looks at it: for `objects.closed`, which is the
    last thing done to a constraint, the keys that one of the sub-schemas of the conjunction names. None: none of them
    says anything of its keys, so the object stays open.
    """

    properties: dict[str, Node]
    key_classes: tuple[KeyClass, ...]
    required: frozenset[str] = frozenset()
    clauses: frozenset[Clause] = frozenset()
    minimum: int = 0
    maximum: int | None = None
    negated: tuple[ObjectConstraint, ...] = ()
    mentioned: frozenset[str] = frozenset()
    named: Named | None = None


class Contains(NamedTuple):
    """Between ``minimum`` and ``maximum`` (None: any number of) items satisfy ``node``."""

    node: Node
    minimum: int
    maximum: int | None


class ArrayConstraint(NamedTuple):
    """A conjunction of conditions on an array.

    ``prefix``: the first items, where there are that many; ``rest``: all after them. ``unique``: no two items are
    equal; ``repeated``: two are. ``negated``: constraints the array must not have; each is only about items and length.
    """

    prefix: tuple[Node, ...] = ()
    rest: Node = TRUE
    minimum: int = 0
    maximum: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    repeated: bool = False
    negated: tuple[ArrayConstraint, ...] = ()


class ArrayCondition(NamedTuple):
    """One way to break a constraint.

    ``item``: there is an item ``number`` and it is outside ``node``; ``rest``: so is one of the items from ``number``
    on; ``minimum``, ``maximum``: fewer or more than ``number`` items; ``contains``: the number that match is wrong;
    ``unique``: two are equal; ``repeated``: no two are.
    """

    kind: str
    number: int = 0
    node: Node = TRUE
    contains: Contains | None = None


class NormalForm(NamedTuple):
    """The values a schema allows. ``constants``: bits for null, false and true."""

    constants: int
    number: NumberLanguage
    string: StringLanguage
    arrays: tuple[ArrayConstraint, ...]
    objects: tuple[ObjectConstraint, ...]


def value_of(constraint: ObjectConstraint, name: str) -> Node:
    """The node of the value of key ``name``."""
    node = constraint.properties.get(name)
    return key_class_value(constraint.key_classes, name) if node is None else node


def key_class_value(key_classes: tuple[KeyClass, ...], name: str) -> Node:
    """The same for a key that is not a named property."""
    return next(matching(key_classes, name), key_classes[0][1]) if len(key_classes) > 1 else key_classes[0][1]


def matching(key_classes: Sequence[KeyClass], name: str) -> Iterator[Node]:
    """The values of the classes that have a key."""
    languages = [language for language, _ in key_classes]
    if are_many(languages):
        numbers = together(tuple(languages)).of(name)
        return iter([key_classes[number][1] for number in sorted(numbers)])
    return (node for language, node in key_classes if language.contains(name))


def item_of(constraint: ArrayConstraint, index: int) -> Node:
    """The node of the item at ``index``."""
    return constraint.prefix[index] if index < len(constraint.prefix) else constraint.rest


ANY_NUMBER = NumberLanguage.any()
NO_NUMBER = NumberLanguage.nothing()
ANY_STRING = StringLanguage.any()
NO_STRING = StringLanguage.nothing()
ALL_NAMED = Named(frozenset(), ANY_STRING, listed=False)
"""Of a schema that says itself what its other keys may be."""
ANY_KEY_CLASSES: tuple[KeyClass, ...] = ((ANY_STRING, TRUE),)
NO_KEY_CLASSES: tuple[KeyClass, ...] = ((ANY_STRING, FALSE),)
ANY_ARRAY = ArrayConstraint()
ANY_OBJECT = ObjectConstraint({}, ANY_KEY_CLASSES)

ANYTHING = NormalForm(ALL_CONSTANTS, ANY_NUMBER, ANY_STRING, (ANY_ARRAY,), (ANY_OBJECT,))
NOTHING = NormalForm(0, NO_NUMBER, NO_STRING, (), ())
