"""``unevaluatedProperties`` and ``unevaluatedItems``, decided before there is a document.

Which members are evaluated depends on which in-place applicators the document satisfies. So the schema is split into
*cases*: a condition on the document, and what is evaluated if it holds. A case may leave out an applicator that the
document happens to satisfy; then it evaluates less and allows less, and another case covers the document. So the union
of the cases is exact, and no case needs to say that an applicator fails (except for ``else``).

JSON Schema Core 2020-12 §11; 2019-09 §9.3, where ``contains`` does not evaluate.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Any, NamedTuple

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra.disjointness import are_disjoint, overlapping
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_NAMED,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    ANYTHING,
    FALSE,
    NO_STRING,
    NOTHING,
    TRUE,
    ArrayConstraint,
    KeyClass,
    Node,
    NormalForm,
    ObjectConstraint,
)
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, UNEVALUATED, Dialect
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader
from dotllm.languages.json_schema.strings.string_language import StringLanguage

MAX_CASES = 64
MAX_DEPTH = 50
_STEPS_OF_A_PAIR = 5
"""Steps of the budget for the question whether two conditions exclude each other."""


class Evaluated(NamedTuple):
    """The parts that a case evaluates: the members with ``names`` or ``keys``, the first ``items`` items (None: all),
    and the items that satisfy one of ``matching``.
    """

    names: frozenset[str] = frozenset()
    keys: StringLanguage = NO_STRING
    items: int | None = 0
    matching: frozenset[Node] = frozenset()

    def __or__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            self.names | other.names,
            self.keys if other.keys is NO_STRING else other.keys if self.keys is NO_STRING else self.keys | other.keys,
            None if self.items is None or other.items is None else max(self.items, other.items),
            self.matching | other.matching,
        )


NOTHING_EVALUATED = Evaluated()

_SAYS_ALL = ANYTHING._replace(objects=(ANY_OBJECT._replace(named=ALL_NAMED),))

Case = tuple[Node, Evaluated]


class _TooManyCases(BudgetExceededError):
    """There are more cases than `MAX_CASES`, some of which may not be needed."""


class Unevaluated:
    """Splits schemas into cases."""

    def __init__(self, reader: SchemaReader) -> None:
        self.reader = reader
        self.algebra = reader.algebra
        self.keyword = ""  # the keyword that errors name
        self.is_thorough = False
        """Whether cases that no document needs are looked for: only where there are too many without that."""
        self._limited = NOTHING  # all values of the types that the keywords limit

    def limit(self, schema: dict[str, Any], scope: Scope, form: NormalForm) -> NormalForm:
        """``form``, the form of ``schema`` without its unevaluated… keywords, limited by these keywords."""
        algebra, reader = self.algebra, self.reader
        if scope.closes and "unevaluatedProperties" in schema:
            form = algebra.meet(form, _SAYS_ALL)
        members = reader.node(schema.get("unevaluatedProperties", True), scope)
        items = reader.node(schema.get("unevaluatedItems", True), scope)
        if members == TRUE and items == TRUE:
            return form
        self.keyword = "unevaluatedItems" if members == TRUE else "unevaluatedProperties"
        own = self._own({name: said for name, said in schema.items() if name not in UNEVALUATED}, scope)
        self._limited = NOTHING._replace(
            arrays=() if items == TRUE else (ANY_ARRAY,), objects=() if members == TRUE else (ANY_OBJECT,)
        )
        try:
            cases = self._applied(schema, scope, own, NOTHING_EVALUATED, 0)
        except _TooManyCases:
            self.is_thorough = True
            cases = self._applied(schema, scope, own, NOTHING_EVALUATED, 0)
        alternatives = []
        if self.is_thorough:  # the cases say nothing of other types
            free = form._replace(
                arrays=form.arrays if items == TRUE else (), objects=form.objects if members == TRUE else ()
            )
            alternatives.append(free)
        for condition, evaluated in cases:
            limits = algebra.of_form(
                ANYTHING._replace(
                    arrays=(self._limited_items(evaluated, items),), objects=(_limited_members(evaluated, members),)
                )
            )
            holding = algebra.form(condition)
            own_form = overlapping(algebra, form, holding) if self.is_thorough else form
            alternatives.append(algebra.meet(algebra.meet(own_form, holding), algebra.form(limits)))
        return algebra.unite(alternatives)

    def _limited_items(self, evaluated: Evaluated, node: Node) -> ArrayConstraint:
        if evaluated.items is None or node == TRUE:
            return ANYTHING.arrays[0]
        rest = self.algebra.any_of([node, *sorted(evaluated.matching)])
        return ArrayConstraint((TRUE,) * evaluated.items, rest, 0, evaluated.items if rest == FALSE else None)

    def _cases(self, schema: Any, scope: Scope, known: Evaluated, depth: int, *, is_given: bool = False) -> list[Case]:
        """The cases in which a sub-schema holds: node with condition, what is evaluated. ``known``: what the
        schemas around it, which hold as well, evaluate. ``is_given``: it holds if they do.

        Raises:
            BudgetExceededError: the schemas are nested too deeply, or have too many cases.
        """
        node = self.reader.node(schema, scope)
        self.algebra.form(node)  # reports malformed keywords now: a lone "if" is read nowhere else
        if not isinstance(schema, dict):
            return [(node, NOTHING_EVALUATED)]
        if depth > MAX_DEPTH:
            raise BudgetExceededError("schemas nested in place too deeply", keyword=self.keyword, code="too_deep")
        scope = self.reader.document.enter(schema, scope)
        if "$ref" in schema and scope.dialect < Dialect.DRAFT2019:
            target = self.reader.document.follow("$ref", schema["$ref"], scope)
            return self._cases(*target, known, depth + 1, is_given=is_given)
        applied = self._applied(schema, scope, self._own(schema, scope), known, depth)
        if is_given and self.is_thorough:
            return applied  # to state it again could square its alternatives
        return [(self.algebra.both(node, condition), evaluated) for condition, evaluated in applied]

    def _own(self, schema: dict[str, Any], scope: Scope) -> Evaluated:
        """The parts that the keywords of ``schema`` itself evaluate."""
        schema = _known(schema, scope)
        names = frozenset(schema.get("properties", ()))
        keys = NO_STRING
        for pattern in schema.get("patternProperties", ()):
            keys = keys | StringLanguage.pattern(pattern)
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            keys = ANY_STRING
        items: int | None = 0
        matching: frozenset[Node] = frozenset()
        if isinstance(schema.get("items"), list):
            items = None if "additionalItems" in schema else len(schema["items"])
        elif "prefixItems" in schema:
            items = None if "items" in schema else len(schema["prefixItems"])
        elif "items" in schema:
            items = None
        if "unevaluatedItems" in schema:
            items = None
        if "contains" in schema and scope.dialect >= Dialect.DRAFT2020:
            matching = frozenset((self.reader.node(schema["contains"], scope),))
        return Evaluated(names, keys, items, matching)

    def _applied(
        self, schema: dict[str, Any], scope: Scope, own: Evaluated, known: Evaluated, depth: int
    ) -> list[Case]:
        """The cases of a schema that holds, from its in-place applicators. ``known``: as in `_cases`."""
        reader, schema = self.reader, _known(schema, scope)
        groups: list[list[Case]] = []
        never: Case = (TRUE, NOTHING_EVALUATED)
        known |= own
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                place = reader.document.follow(keyword, schema[keyword], scope)
                groups.append(self._cases(*place, known, depth + 1, is_given=True))
        for child in schema.get("allOf", ()):
            groups.append(self._cases(child, scope, known, depth + 1, is_given=True))
        for child in schema.get("anyOf", ()):
            groups.append([never, *self._informative(self._cases(child, scope, known, depth + 1), known)])
        one_of = [case for child in schema.get("oneOf", ()) for case in self._cases(child, scope, known, depth + 1)]
        informative = self._informative(one_of, known)
        needs_never = len(informative) < len(one_of) or not one_of or not self.is_thorough
        groups.append([never, *informative] if needs_never else informative)  # else a branch holds, and says more
        if "if" in schema:
            groups.append([never, *self._conditional(schema, scope, known, depth)])
        for keyword in ("dependentSchemas", "dependencies"):
            for name, child in schema.get(keyword, {}).items():
                if not isinstance(child, list):
                    present = reader.present(name)
                    cases = self._informative(self._cases(child, scope, known, depth + 1), known)
                    groups.append([never, *((self.algebra.both(present, node), ev) for node, ev in cases)])
        return self._product([[(TRUE, own)], *groups])

    def _conditional(self, schema: dict[str, Any], scope: Scope, known: Evaluated, depth: int) -> Iterable[Case]:
        holds = self._cases(schema["if"], scope, known, depth + 1)
        then = self._cases(schema.get("then", True), scope, known, depth + 1)
        otherwise = self._cases(schema.get("else", True), scope, known, depth + 1)
        fails = self.reader.not_of(schema["if"], scope)
        yield from self._informative(self._product([holds, then]), known)
        yield from self._informative([(self.algebra.both(fails, node), ev) for node, ev in otherwise], known)

    def _informative(self, cases: list[Case], known: Evaluated) -> list[Case]:
        """The cases that evaluate more than ``known``. The others say nothing that the case "never" does not say."""
        return [case for case in cases if known | case[1] != known]

    def _product(self, groups: list[list[Case]]) -> list[Case]:
        """All ways to choose one case of each group. Raises BudgetExceededError if there are more than `MAX_CASES`."""
        groups = [group for group in groups if group != [(TRUE, NOTHING_EVALUATED)]]
        if self.is_thorough:
            return self._needed_product(groups)
        if prod(map(len, groups)) > MAX_CASES:
            raise self._too_many()
        out: list[Case] = []
        for chosen in product(*groups):
            evaluated = NOTHING_EVALUATED
            for _, part in chosen:
                evaluated = evaluated | part
            out.append((self.algebra.all_of(node for node, _ in chosen), evaluated))
        return out

    def _needed_product(self, groups: list[list[Case]]) -> list[Case]:
        """`_product` without the cases that no value of a limited type is in, and without those that say nothing more
        than another one: it has no further condition, and evaluates at least as much.

        Raises:
            BudgetExceededError: there are still too many.
        """
        algebra = self.algebra
        limited = algebra.of_form(self._limited, ("limited", bool(self._limited.arrays), bool(self._limited.objects)))
        out: list[Case] = [(limited, NOTHING_EVALUATED)]
        for group in groups:
            pairs = [*product(out, group)]
            algebra.spend(_STEPS_OF_A_PAIR * len(pairs))
            joined = [(algebra.both(a, b), x | y) for (a, x), (b, y) in pairs if not are_disjoint(algebra, a, b)]
            out = []
            for case in joined:
                algebra.spend(1 + len(out))
                if not algebra.is_empty(case[0]) and not any(self._covers(other, case) for other in out):
                    out = [*(other for other in out if not self._covers(case, other)), case]
            if len(out) > MAX_CASES:
                raise self._too_many()
        return out

    def _covers(self, other: Case, case: Case) -> bool:
        (a, x), (b, y) = other, case
        return self.algebra.is_part(a, b) and x | y == x

    def _too_many(self) -> BudgetExceededError:
        message = f"{self.keyword} depends on more than {MAX_CASES} combinations of sub-schemas"
        return (BudgetExceededError if self.is_thorough else _TooManyCases)(message, keyword=self.keyword)


def _known(schema: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """``schema`` without keywords that its dialect does not know."""
    return {keyword: value for keyword, value in schema.items() if keyword in ASSERTIONS[scope.dialect]}


def _limited_members(evaluated: Evaluated, node: Node) -> ObjectConstraint:
    if node == TRUE or evaluated.keys == ANY_STRING:
        return ANYTHING.objects[0]
    key_classes: tuple[KeyClass, ...] = ((ANY_STRING, node),)
    if evaluated.keys is not NO_STRING:
        key_classes = ((evaluated.keys, TRUE), (~evaluated.keys, node))
    return ObjectConstraint(dict.fromkeys(sorted(evaluated.names), TRUE), key_classes, mentioned=evaluated.names)
