"""Sub-schemas → canonical forms: what each keyword means.

The keywords of a schema are read type by type into one form, then met with the forms of its applicators (``$ref``,
``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``, ``dependentSchemas``). A keyword with a malformed value is an
`InvalidSpec`. Keywords that assert nothing, and those a dialect does not know, are not looked at.

JSON Schema Validation 2020-12 (and the drafts before it), https://json-schema.org/specification
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Set
from typing import Any, get_args

from dotllm.errors import InvalidSpec, Pointer, SpecError
from dotllm.languages.json_schema.algebra import arrays, objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.disjointness import one_of
from dotllm.languages.json_schema.algebra.form import (
    ALL_NAMED,
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_REGIONS,
    ANY_STRING,
    ANYTHING,
    FALSE,
    FALSE_BIT,
    NO_NUMBER,
    NO_REGIONS,
    NO_STRING,
    NULL_BIT,
    TRUE,
    TRUE_BIT,
    ArrayShape,
    Clause,
    Contains,
    Form,
    Named,
    Node,
    ObjectShape,
    Region,
    region_value,
)
from dotllm.languages.json_schema.algebra.object_conditions import broken, conditions, mentioning
from dotllm.languages.json_schema.options import Options, Order
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect
from dotllm.languages.json_schema.reading.document import Document, Scope
from dotllm.languages.json_schema.reading.json_values import form_of_values
from dotllm.languages.json_schema.reading.keyword_values import (
    INTEGERS,
    blamed,
    check_text,
    count,
    mapping,
    name_list,
    numeric,
)
from dotllm.languages.json_schema.reading.repetition import Repetitions
from dotllm.languages.json_schema.reading.unevaluated import Unevaluated
from dotllm.languages.json_schema.strings.string_language import StringLanguage

TYPES: dict[str, Form] = {
    "null": Form(NULL_BIT, NO_NUMBER, NO_STRING, (), ()),
    "boolean": Form(FALSE_BIT | TRUE_BIT, NO_NUMBER, NO_STRING, (), ()),
    "number": Form(0, ANY_NUMBER, NO_STRING, (), ()),
    "integer": Form(0, INTEGERS, NO_STRING, (), ()),
    "string": Form(0, NO_NUMBER, ANY_STRING, (), ()),
    "array": Form(0, NO_NUMBER, NO_STRING, (ANY_ARRAY,), ()),
    "object": Form(0, NO_NUMBER, NO_STRING, (), (ANY_OBJECT,)),
}

SCALARS = {name: form for name, form in TYPES.items() if not form.arrays and not form.objects}
"""Most sub-schemas are no more than one of these. Nothing can go wrong with them, so they need no place: all of a type
are one node."""

NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
STRINGS = frozenset({"minLength", "maxLength", "pattern", "format"})
ARRAYS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems", "maxItems"}
    | {"uniqueItems"}
)
OBJECTS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties"}
    | {"maxProperties", "dependentRequired", "dependencies"}
)
IN_PLACE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
    | {"dependencies"}
)
UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
HOLDING = (
    (IN_PLACE | UNEVALUATED) - {"$ref", "$dynamicRef", "$recursiveRef"}
    | {"then", "else", "properties", "patternProperties", "additionalProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "contains"}
)
"""Keywords whose values are schemas, or hold some."""
NOT_A_SCHEMA = "a schema must be an object or a boolean"
DECLARING = frozenset({"properties", "additionalProperties"})
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
FEW_DEPENDENCIES = 4
FEW_NODES = 32


class Keywords:
    """Reads the sub-schemas of one document."""

    def __init__(self, document: Document, algebra: Algebra, options: Options) -> None:
        if options.order not in get_args(Order):
            raise InvalidSpec(f"order must be one of {get_args(Order)}, not {options.order!r}", keyword="order")
        self._wrong: Any = None
        self.document = document
        self.algebra = algebra
        self.repetitions = Repetitions()
        algebra.reader = weakref.proxy(self)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def node(self, schema: Any, scope: Scope) -> Node:
        """The node of a sub-schema; one that is only a reference is what it refers to."""
        seen = 0
        via: tuple[dict[str, Any], str] | None = None
        while True:
            if schema is True:
                return TRUE
            if schema is False:
                return FALSE
            if not isinstance(schema, dict):
                self._wrong = schema
                wrong = InvalidSpec(NOT_A_SCHEMA)
                raise wrong if via is None else self.located(wrong, *via)
            if "$id" in schema or "id" in schema:
                scope = self.document.enter(schema, scope)
            relevant = ASSERTIONS[scope.dialect].intersection(schema)
            if not relevant:
                return TRUE
            if len(relevant) == 1 and (scalar := SCALARS.get(str(schema.get("type")))) is not None:
                return self.algebra.of_form(scalar, ("type", schema["type"]))
            if relevant.isdisjoint(REFERENCES) or (len(relevant) > 1 and scope.dialect >= Dialect.DRAFT2019):
                if len(self.algebra.parts) > FEW_NODES:  # a large document: it may say the same again and again
                    schema = self.repetitions.first(schema)
                return self.algebra.of_schema(schema, scope)
            reference = next(keyword for keyword in REFERENCES if keyword in relevant)
            via = (schema, reference)
            seen += 1
            if seen > 1000:
                raise self.located(InvalidSpec("$ref refers to itself without end", keyword="$ref"), *via)
            try:
                schema, scope = self.document.follow(reference, schema[reference], scope)
            except SpecError as error:
                raise self.located(error, *via) from None

    def nodes(self, keyword: str, schemas: Any, scope: Scope) -> list[Node]:
        """The nodes of a non-empty list of sub-schemas."""
        if not isinstance(schemas, list) or not schemas:
            raise InvalidSpec(f"{keyword} must be a non-empty list of schemas", keyword=keyword)
        return [self.node(schema, scope) for schema in schemas]

    def located(self, error: SpecError, schema: dict[str, Any], keyword: str = "") -> SpecError:
        """The error with the place of ``schema`` in the document."""
        if error.location is not None:
            return error
        keyword = error.keyword or keyword
        pointer = self.document.pointer(schema)
        if not keyword and error.message == NOT_A_SCHEMA:
            keyword, pointer = _place_of(self._wrong, schema, pointer)
        elif keyword in schema:
            pointer = pointer / keyword
        return error.at(pointer, keyword)

    # -- forms ---------------------------------------------------------------------------------------------------------

    def form(self, schema: dict[str, Any], scope: Scope) -> Form:
        """The canonical form of a sub-schema."""
        try:
            return self._form(schema, scope)
        except SpecError as error:
            if error.location is not None:
                raise
            raise self.located(error, schema) from error.__cause__

    def _form(self, schema: dict[str, Any], scope: Scope) -> Form:
        relevant = ASSERTIONS[scope.dialect].intersection(schema)
        out = self._types(schema["type"]) if "type" in relevant else ANYTHING
        if len(relevant) == 1 and out is not ANYTHING:
            return out
        constants, number, string, array_shapes, object_shapes = out
        if number is not NO_NUMBER and not relevant.isdisjoint(NUMERIC):
            number = numeric(schema, number)
        if string is not NO_STRING and not relevant.isdisjoint(STRINGS):
            string = self._string(schema)
        if array_shapes and not relevant.isdisjoint(ARRAYS):
            array = self._array(schema, scope)
            array_shapes = () if array is None else (array,)
        if object_shapes and not relevant.isdisjoint(OBJECTS):
            shape = self._object(schema, scope)
            object_shapes = () if shape is None else (shape,)
        out = Form(constants, number, string, array_shapes, object_shapes)
        if "enum" in relevant:
            out = self._enum(out, schema["enum"])
        if "const" in relevant:
            out = self._enum(out, [schema["const"]], "const")
        if not relevant.isdisjoint(IN_PLACE):
            out = self._with_applicators(schema, scope, relevant, out)
        if not relevant.isdisjoint(UNEVALUATED):
            out = Unevaluated(self).limit(schema, scope, out)
        return out

    def _types(self, types: Any) -> Form:
        if isinstance(types, str):
            found = TYPES.get(types)
            if found is None:
                raise InvalidSpec(f"unknown type {types!r}", keyword="type")
            return found
        if not isinstance(types, list) or not types:
            raise InvalidSpec("type must be a name or a non-empty list of names", keyword="type")
        names = [name for name in types if name != "integer" or "number" not in types]
        return self.algebra.unite([self._types(name if isinstance(name, str) else repr(name)) for name in names])

    def _string(self, schema: dict[str, Any]) -> StringLanguage:
        low, high = count(schema, "minLength") or 0, count(schema, "maxLength")
        out = ANY_STRING if not low and high is None else StringLanguage.length(low, high)
        if "pattern" in schema:
            pattern = schema["pattern"]
            if not isinstance(pattern, str):
                raise InvalidSpec("pattern must be a string", keyword="pattern")
            out = out & StringLanguage.pattern(pattern)
        if "format" in schema:
            name = schema["format"]
            if not isinstance(name, str):
                raise InvalidSpec("format must be a string", keyword="format")
            language = StringLanguage.format(name)
            if language is not None:
                out = out & language
        return out

    # -- enum and const ------------------------------------------------------------------------------------------------

    def _enum(self, form: Form, values: Any, keyword: str = "enum") -> Form:
        """``form`` ∧ one of ``values``."""
        if not isinstance(values, list):
            raise InvalidSpec("enum must be a list", keyword="enum")
        try:
            listed = form_of_values(self.algebra, values)
        except SpecError as error:
            raise blamed(error, keyword) from error.__cause__
        return listed if form is ANYTHING else self.algebra.meet(form, listed)

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _array(self, schema: dict[str, Any], scope: Scope) -> ArrayShape | None:
        prefix: tuple[Node, ...] = ()
        rest = TRUE
        items = schema.get("items", True)
        if scope.dialect >= Dialect.DRAFT2020 and "prefixItems" in schema:
            prefix = tuple(self.nodes("prefixItems", schema["prefixItems"], scope))
            rest = self.node(items, scope)
        elif isinstance(items, list):
            prefix = tuple(self.node(item, scope) for item in items)
            rest = self.node(schema.get("additionalItems", True), scope)
        else:
            rest = self.node(items, scope)
        contains: tuple[Contains, ...] = ()
        if "contains" in schema and scope.dialect >= Dialect.DRAFT6:
            low, high = 1, None
            if scope.dialect >= Dialect.DRAFT2019:
                least = count(schema, "minContains")
                low, high = 1 if least is None else least, count(schema, "maxContains")
            contains = (Contains(self.node(schema["contains"], scope), low, high),)
        unique = schema.get("uniqueItems", False)
        if not isinstance(unique, bool):
            raise InvalidSpec("uniqueItems must be a boolean", keyword="uniqueItems")
        shape = ArrayShape(prefix, rest, count(schema, "minItems") or 0, count(schema, "maxItems"), contains, unique)
        return ANY_ARRAY if shape == ANY_ARRAY else arrays.simplified(self.algebra, shape)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _object(self, schema: dict[str, Any], scope: Scope) -> ObjectShape | None:
        declared = mapping(schema, "properties")
        properties = {name: self.node(child, scope) for name, child in declared.items()} if declared else {}
        regions = self._regions(schema, scope, properties)
        required: frozenset[str] = frozenset()
        if "required" in schema:
            names = name_list("required", schema["required"])
            required = frozenset(names)
            for name in names:
                if name not in properties:
                    properties[name] = region_value(regions, name)
        clauses: frozenset[Clause] = frozenset()
        if "dependentRequired" in schema or "dependencies" in schema:
            clauses = self._dependent_required(schema, scope)
            for name in sorted({name for clause in clauses for name, _ in clause}):
                if name not in properties:
                    properties[name] = region_value(regions, name)
        shape = ObjectShape(
            properties,
            regions,
            required,
            clauses,
            count(schema, "minProperties") or 0,
            count(schema, "maxProperties"),
            (),
            frozenset(properties.keys() - declared.keys()) if len(properties) > len(declared) else frozenset(),
            self._named(schema, declared) if scope.closes else None,
        )
        return ANY_OBJECT if shape == ANY_OBJECT else objects.simplified(self.algebra, shape)

    def _named(self, schema: dict[str, Any], declared: dict[str, Any]) -> Named | None:
        """The keys that a schema names, for objects that are to have no others (`objects.closed`)."""
        if "additionalProperties" in schema:
            return ALL_NAMED
        if "properties" not in schema and "patternProperties" not in schema:
            return None
        keys = NO_STRING
        for pattern in mapping(schema, "patternProperties"):
            keys = keys | StringLanguage.pattern(pattern)
        return Named(frozenset(declared), keys)

    def _regions(self, schema: dict[str, Any], scope: Scope, properties: dict[str, Node]) -> tuple[Region, ...]:
        """The partition of the keys that ``properties`` does not name; patterns and propertyNames also constrain
        those it does name."""
        patterns = mapping(schema, "patternProperties")
        additional = TRUE
        if "additionalProperties" in schema:
            additional = self.node(schema["additionalProperties"], scope)
        regions = (
            ANY_REGIONS if additional == TRUE else NO_REGIONS if additional == FALSE else ((ANY_STRING, additional),)
        )
        named = dict(properties)
        if patterns:
            both = self.algebra.both
            by_pattern = [(StringLanguage.pattern(p), self.node(child, scope)) for p, child in patterns.items()]
            matched = StringLanguage.nothing()
            split: tuple[Region, ...] = ANY_REGIONS
            for language, node in by_pattern:
                matched = matched | language
                split = objects.meet_regions(self.algebra, split, ((language, node), (~language, TRUE)))
                for name in properties:
                    if language.contains(name):
                        named[name] = both(named[name], node)
            if additional != TRUE:
                rest: tuple[Region, ...] = ((matched, TRUE), (~matched, additional))
                split = objects.meet_regions(self.algebra, split, rest)
            regions = split
        if "propertyNames" in schema and scope.dialect >= Dialect.DRAFT6:
            allowed = self.algebra.form(self.node(schema["propertyNames"], scope)).string
            if allowed != ANY_STRING:
                for name in named:
                    if not allowed.contains(name):
                        named[name] = FALSE
                limits: tuple[Region, ...] = ((allowed, TRUE), (~allowed, FALSE))
                regions = (
                    objects.meet_regions(self.algebra, regions, limits) if allowed is not NO_STRING else NO_REGIONS
                )
        properties.update(named)
        return regions

    def _dependent_required(self, schema: dict[str, Any], scope: Scope) -> frozenset[Clause]:
        clauses: set[Clause] = set()
        if scope.dialect >= Dialect.DRAFT2019:
            check_text(mapping(schema, "dependentRequired"), "dependentRequired")
            for name, needed in mapping(schema, "dependentRequired").items():
                names = name_list("dependentRequired", needed)
                clauses.update(frozenset([(name, False), (other, True)]) for other in names if other != name)
        check_text(mapping(schema, "dependencies"), "dependencies")
        for name, dependency in mapping(schema, "dependencies").items():
            if isinstance(dependency, list):
                names = name_list("dependencies", dependency)
                clauses.update(frozenset([(name, False), (other, True)]) for other in names if other != name)
        return frozenset(clauses)

    # -- applicators in place ------------------------------------------------------------------------------------------

    def _with_applicators(self, schema: dict[str, Any], scope: Scope, relevant: Set[str], own: Form) -> Form:
        """``own`` ∧ all that must hold of the same value, met in the order of the schema's text, so that keys are
        declared in the order in which a reader meets them. The place of ``own`` is where its members are declared."""
        algebra = self.algebra
        out = ANYTHING
        if relevant.isdisjoint(DECLARING):
            out, own = own, ANYTHING
        for keyword, value in schema.items():
            if keyword in DECLARING and keyword in relevant:
                out, own = algebra.meet(out, own), ANYTHING
            elif keyword in IN_PLACE and keyword in relevant:
                for node in self._applicator(keyword, value, schema, scope):
                    out = algebra.meet(out, algebra.form(node))
        return out

    def _applicator(self, keyword: str, value: Any, schema: dict[str, Any], scope: Scope) -> Iterable[Node]:
        """What a keyword says of the value itself."""
        algebra = self.algebra
        if keyword in REFERENCES:
            yield self.node(*self.document.follow(keyword, value, scope))
        elif keyword == "allOf":
            yield from self.nodes(keyword, value, scope)
        elif keyword == "anyOf":
            yield algebra.any_of(self.nodes(keyword, value, scope))
        elif keyword == "oneOf":
            excluded = self.nodes(keyword, value, self.document.stating(scope)) if scope.closes else None
            yield one_of(algebra, self.nodes(keyword, value, scope), excluded)
        elif keyword == "not":
            yield self.not_of(value, scope)
        elif keyword == "if":
            yield self._conditional(schema, scope)
        else:
            children = mapping(schema, keyword).items()
            lists = keyword == "dependencies"  # of names, which are read elsewhere
            dependent = [(name, child) for name, child in children if not (lists and isinstance(child, list))]
            for name, child in dependent:
                node = self.node(child, scope)
                whole = self._implied(name, node) if len(dependent) > FEW_DEPENDENCIES else None
                if whole is None:
                    # Without the key the schema says nothing; where it names keys, that matters.
                    needed = algebra.both(self.present(name), node) if scope.closes else node
                    whole = algebra.any_of([self._absent(name), needed])
                yield whole

    def not_of(self, schema: Any, scope: Scope) -> Node:
        """The values that a sub-schema does not allow."""
        return self.algebra.complement(self.node(schema, self.document.stating(scope)))

    def _conditional(self, schema: dict[str, Any], scope: Scope) -> Node:
        algebra = self.algebra
        condition = self.node(schema["if"], scope)
        then = self.node(schema.get("then", True), scope)
        otherwise = self.node(schema.get("else", True), scope)
        if then == otherwise:
            return then
        fails = self.not_of(schema["if"], scope)
        return algebra.any_of([algebra.both(condition, then), algebra.both(fails, otherwise)])

    def _implied(self, name: str, node: Node) -> Node | None:
        """Objects that have the key ``name`` are of ``node``: as one shape that excludes each way to be otherwise, not
        as two alternatives, of which n dependencies would make 2**n. None if ``node`` is not that simple."""
        form = self.algebra.form(node)
        if len(form.objects) != 1 or form.objects[0].negated or form.objects[0].named is not None:
            return None
        excluded: list[ObjectShape] = []
        for condition in conditions(form.objects[0]):
            if condition.kind == "region":
                return None
            way = objects.meet(self.algebra, mentioning({name: TRUE}, [name]), broken(self.algebra, condition))
            if way is not None:
                excluded.append(way)
        names = dict.fromkeys((key for way in excluded for key in way.properties), TRUE)
        shape = mentioning(names)._replace(negated=tuple(excluded))
        return self.algebra.of_form(ANYTHING._replace(objects=(shape,)))

    def _absent(self, name: str) -> Node:
        """Not an object that has the key ``name``."""
        form = ANYTHING._replace(objects=(mentioning({name: FALSE}),))
        return self.algebra.of_form(form, ("absent", name))

    def present(self, name: str) -> Node:
        """An object that has the key ``name``."""
        form = Form(0, NO_NUMBER, NO_STRING, (), (mentioning({name: TRUE}, [name]),))
        return self.algebra.of_form(form, ("present", name))


def _place_of(value: Any, schema: dict[str, Any], pointer: Pointer) -> tuple[str, Pointer]:
    """The keyword of ``schema`` (at ``pointer``) in which ``value`` stands for a sub-schema, and its JSON Pointer."""
    for keyword in HOLDING.intersection(schema):
        held = schema[keyword]
        if held is value:
            return keyword, pointer / keyword
        children = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
        for name, child in children:
            if child is value:
                return keyword, pointer / keyword / name
    return "", pointer
