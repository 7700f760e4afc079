"""The normal form of a schema: for each JSON type, the values that are allowed.

Scalars are languages (sets closed under and, or, not). Arrays and objects are unions of *constraints*. A constraint is
a conjunction of conditions, each on one aspect (a member, an item, a count), and of constraints that must *not* hold.
So this is a disjunctive normal form, and ∧, ∨, ¬ stay inside it (`algebra`, `objects`, `arrays`). Children are nodes,
not forms: a form is one level deep, so recursion ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NewType

from dotllm.languages.json_schema.numbers import number_language
from dotllm.languages.json_schema.numbers.number_language import NumberLanguage
from dotllm.languages.json_schema.strings import string_language
from dotllm.languages.json_schema.strings.string_language import StringLanguage, are_many, together

Node = NewType("Node", int)
"""A schema or a boolean combination of schemas: the number that `algebra.Algebra` gave it."""

TRUE = Node(0)
"""The schema ``true``: every value."""
FALSE = Node(1)
"""The schema ``false``: no value."""

NULL_BIT, FALSE_BIT, TRUE_BIT = 1, 2, 4
ALL_CONSTANTS = NULL_BIT | FALSE_BIT | TRUE_BIT

Clause = frozenset[tuple[str, bool]]
"""At least one of the keys is as stated: present (True) or absent (False)."""

KeyClass = tuple[StringLanguage, Node]
"""Members whose key is in the language (and is not a named property) have a value of the node."""


class Named(NamedTuple):
    """The keys that a schema names, one by one and by patterns. ``listed``: the schema has ``properties``."""

    names: frozenset[str]
    keys: StringLanguage
    listed: bool


class ObjectConstraint(NamedTuple):
    """A conjunction of conditions on an object.

    ``properties``: the value of each key that the schema names, in declared order (never modified). ``key_classes``: a
    partition of all other keys; a single key class means all of them, whatever its language. ``clauses``: conditions on
    the presence of named keys; ``required``: the keys that must be present. ``negated``: constraints that the object
    must not satisfy, each without ``negated``. ``mentioned``: the keys that are named, but not in a ``properties`` that
    holds, so they have no declared place (``required`` without ``properties``, …).

    ``named``: the keys that some sub-schema of the conjunction names; None if none of them says anything of its keys,
    so the object stays open. This is not a constraint of the schema: only ∧ looks at it, and `objects.closed`, the last
    operation on a constraint.
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
    """At least ``minimum`` and at most ``maximum`` items (None: any number) satisfy ``node``."""

    node: Node
    minimum: int
    maximum: int | None


class ArrayConstraint(NamedTuple):
    """A conjunction of conditions on an array.

    ``prefix``: the first items, if there are that many; ``rest``: all later items. ``unique``: no two items are equal;
    ``repeated``: two are. ``negated``: constraints that the array must not satisfy, each only about items and length.
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
    """One way to break a constraint on items and length.

    ``item``: there is an item ``number`` and it is outside ``node``; ``rest``: an item from ``number`` on is outside
    ``node``; ``minimum``, ``maximum``: there are fewer or more than ``number`` items.
    """

    kind: str
    number: int
    node: Node = TRUE


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
    return next(matching(key_classes)(name), key_classes[0][1]) if len(key_classes) > 1 else key_classes[0][1]


def matching(key_classes: Sequence[KeyClass]) -> Callable[[str], Iterator[Node]]:
    """A function from a key to the values of the key classes that contain it."""
    languages = [language for language, _ in key_classes]
    if are_many(languages):
        numbers_of = together(tuple(languages)).of
        return lambda name: (key_classes[number][1] for number in sorted(numbers_of(name)))
    return lambda name: (node for language, node in key_classes if language.contains(name))


def item_of(constraint: ArrayConstraint, index: int) -> Node:
    """The node of the item at ``index``."""
    return constraint.prefix[index] if index < len(constraint.prefix) else constraint.rest


ANY_NUMBER, NO_NUMBER = number_language.ANY_NUMBER, number_language.NO_NUMBER
ANY_STRING, NO_STRING = string_language.ANY_STRING, string_language.NO_STRING
ALL_NAMED = Named(frozenset(), ANY_STRING, listed=False)
"""For a schema that itself says what its other keys may be."""
ANY_KEY_CLASSES: tuple[KeyClass, ...] = ((ANY_STRING, TRUE),)
NO_KEY_CLASSES: tuple[KeyClass, ...] = ((ANY_STRING, FALSE),)
ANY_ARRAY = ArrayConstraint()
ANY_OBJECT = ObjectConstraint({}, ANY_KEY_CLASSES)

ANYTHING = NormalForm(ALL_CONSTANTS, ANY_NUMBER, ANY_STRING, (ANY_ARRAY,), (ANY_OBJECT,))
NOTHING = NormalForm(0, NO_NUMBER, NO_STRING, (), ())
