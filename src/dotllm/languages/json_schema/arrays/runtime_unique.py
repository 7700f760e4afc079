"""``uniqueItems`` over infinitely many values: an ordinary array whose beginning is marked, so that guides remember its
items (`dotllm.index.unique`).

A guide forbids an item that could only repeat an earlier one. Another item must then be possible: this module checks
that there are enough different values for the items that the array must have.
"""

from __future__ import annotations

from dotllm.errors import UnsupportedError
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import (
    FALSE,
    NO_NUMBER,
    NO_STRING,
    ArrayConstraint,
    Node,
    ObjectConstraint,
    item_of,
)
from dotllm.languages.json_schema.strings.forbidden_substrings import forbidden_substrings
from dotllm.languages.json_schema.strings.string_language import ANY_STRING, StringLanguage
from dotllm.languages.json_schema.writer import Writer

_DEPTH = 8
_KEYS = 64  # a set of more keys is not counted
_MARGIN = 64  # values counted beyond those needed: an array of unique items uses up one for each item


def distinct_array_open(writer: Writer, constraint: ArrayConstraint) -> Expression:
    """The opening bracket of a ``unique`` array. Raises UnsupportedError unless there are surely enough values."""
    if writer.options.source is not None:  # it may have fewer values than the array has items
        raise UnsupportedError(
            "uniqueItems cannot be combined with a source of values", keyword="uniqueItems", help="remove one of them"
        )
    excludes = writer.options.excludes
    strings = forbidden_substrings(excludes).strings if excludes else ANY_STRING
    # An excluded constraint may be one that only a longer array breaks.
    least = max(constraint.minimum, *(excluded.maximum + 1 for excluded in constraint.negated if excluded.maximum), 0)
    positions = range(min(least - 1, len(constraint.prefix)) + 1) if least > 1 else range(0)
    for i in positions:
        needed = least if i == len(constraint.prefix) else i + 1
        if _Counts(writer.algebra, strings, needed + _MARGIN).values(item_of(constraint, i)) < needed:
            raise UnsupportedError(
                "uniqueItems cannot be enforced with this minItems: "
                f"it is not certain that there are {needed} different values",
                keyword="uniqueItems",
                help="lower minItems, or let the items have more values",
            )
    return writer.text.distinct_array_open()


class _Counts:
    """Lower bounds on the number of values of nodes, counted up to ``limit``. Strings and keys are in ``strings``."""

    def __init__(self, algebra: Algebra, strings: StringLanguage, limit: int) -> None:
        self._algebra = algebra
        self._strings = strings
        self._limit = limit
        self._known: dict[tuple[Node, int], int] = {}

    def values(self, node: Node, depth: int = _DEPTH) -> int:
        """The least number of values of ``node``; arrays and objects nested deeper than ``depth`` are not counted."""
        if node == FALSE:
            return 0
        known = self._known.get((node, depth))
        if known is None:
            known = self._known[node, depth] = min(self._limit, self._values(node, depth))
        return known

    def _values(self, node: Node, depth: int) -> int:
        limit = self._limit
        form = self._algebra.form(node)
        count = form.constants.bit_count()
        if form.number is not NO_NUMBER:
            numbers = form.number.finite_values(limit)
            count += limit if numbers is None else len(numbers)
        if count < limit and form.string is not NO_STRING:
            strings = (form.string & self._strings).finite_values(limit)
            count += limit if strings is None else len(strings)
        if count >= limit or not depth:
            return count
        # Two alternatives may have values in common.
        count += max((self._objects(constraint, depth - 1) for constraint in form.objects), default=0)
        if count >= limit:
            return count
        return count + max((self._arrays(constraint, depth - 1) for constraint in form.arrays), default=0)

    def _objects(self, stated: ObjectConstraint, depth: int) -> int:
        constraint = objects.closed(self._algebra, stated)
        if constraint is None or constraint.negated or constraint.minimum > len(constraint.required):
            return 0
        if any(len(clause) > 1 or not next(iter(clause))[1] for clause in constraint.clauses):
            return 0
        count = 1
        for name in constraint.required:
            count *= self.values(constraint.properties.get(name, FALSE), depth) * self._strings.contains(name)
        if not count or constraint.maximum is not None:  # only objects without other keys are counted
            return count if constraint.maximum is None or constraint.maximum >= len(constraint.required) else 0
        for name, node in constraint.properties.items():
            if count < self._limit and name not in constraint.required and self._strings.contains(name):
                count *= self.values(node, depth) + 1
        if count < self._limit and any(
            (keys & self._strings).finite_values(_KEYS) is None and self.values(node, depth)
            for keys, node in constraint.key_classes
        ):
            return self._limit
        return count

    def _arrays(self, constraint: ArrayConstraint, depth: int) -> int:
        if constraint.negated or constraint.contains or constraint.repeated:
            return 0
        if constraint.maximum is not None and constraint.maximum < constraint.minimum:
            return 0
        longest = constraint.maximum
        count, of_this_length, length = 0, 1, 0
        while True:  # bounded: by the limit and the prefix
            if length >= constraint.minimum:
                count += of_this_length
            if not of_this_length or count >= self._limit or length == longest:
                return count
            values = self.values(item_of(constraint, length), depth)
            if constraint.unique:
                values = max(0, values - length)
            elif values and length >= len(constraint.prefix):  # all further items share one node
                if of_this_length >= self._limit:
                    return self._limit
                if values == 1:
                    lengths = self._limit if longest is None else longest - max(length, constraint.minimum - 1)
                    return count + of_this_length * lengths
            of_this_length = min(self._limit, of_this_length * values)
            length += 1
