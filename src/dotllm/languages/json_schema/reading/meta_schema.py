"""Refuses a schema in which a keyword has a value that the meta-schema of its dialect forbids.

The reader of a type reads only the keywords of that type, and of the definitions only those that it reaches. So
``"required": true`` in a property of strings, or ``"items": 5`` in a definition that nothing uses, would go unnoticed.
A validator checks the whole document against its meta-schema first (Core 2020-12 §8.1.2). This module does the same in
one pass over the sub-schemas; targets of references elsewhere are checked when they are read (`Document.follow`). So
the readers of keywords can rely on the types of values.

It allows more than the meta-schemas, namely what is read alike in all dialects: keywords that outlived their draft
(`dialect`), numbers as ``exclusiveMinimum`` in draft 4, 1.0 as a count, booleans as schemas, empty or repeated entries
of ``required`` and ``enum``, fragments in ``$id``, which many schemas for draft 7 have for no stated reason, and any
value of an annotation (`ineffective` names those of the wrong type).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias

from dotllm.errors import InvalidSpecError, Pointer, SpecError
from dotllm.languages.json_schema.reading import remedies
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, REFERENCES, Dialect, detect, identifier_of
from dotllm.languages.json_schema.reading.ineffective import is_clear
from dotllm.languages.json_schema.reading.subschemas import (
    LISTS_OF_SCHEMAS,
    MAPS_OF_SCHEMAS,
    SCHEMAS,
    Path,
    pointer,
)
from dotllm.languages.regex.parser import parse

NOT_A_SCHEMA = "a schema must be an object or a boolean"
_NAMES = "must be a list of strings"

Check = Callable[[Any], str]
"""The fault of a value, as a text to put after the keyword's name; "" if there is none."""


def _a(kind: type[Any], what: str) -> Check:
    return lambda value: "" if isinstance(value, kind) else f"must be {what}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if not _is_number(value):
        return "must be a number"
    if isinstance(value, int):
        return ""
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    return "" if is_finite else f"is {value}, which is not a JSON number"


def _limit(value: Any) -> str:
    return "" if isinstance(value, bool) else _number(value)


def _step(value: Any) -> str:
    return _number(value) or ("" if value > 0 else f"must be greater than 0, not {value}")


def _count(value: Any) -> str:
    wrong = _number(value)
    if wrong:
        return wrong
    whole = (
        value.is_integer()
        if isinstance(value, float)
        else value == (value.to_integral_value() if isinstance(value, Decimal) else value)
    )
    return "" if whole and value >= 0 else "must be a non-negative integer"


def _names(value: Any) -> str:
    if not isinstance(value, list):
        return _NAMES
    return "" if _TEXT.issuperset(map(type, value)) or all(isinstance(name, str) for name in value) else _NAMES


def _schemas(value: Any) -> str:
    return "" if isinstance(value, list) and value else "must be a non-empty list of schemas"


def _vocabulary(value: Any) -> str:
    is_right = isinstance(value, dict) and all(isinstance(part, bool) for part in value.values())
    return "" if is_right else "must be an object of booleans"


_STRING, _BOOLEAN, _LIST, _MAP = (
    _a(str, "a string"), _a(bool, "a boolean"), _a(list, "a list"), _a(dict, "an object"),
)  # fmt: skip
_CHECKS: dict[str, Check | None] = {
    "enum": _LIST, "multipleOf": _step, "required": _names,
    **dict.fromkeys(("maximum", "minimum"), _number), **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _limit),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("pattern", "format", *REFERENCES), _STRING), "uniqueItems": _BOOLEAN,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _schemas), "prefixItems": _LIST, "items": None,
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "dependencies", "dependentRequired"), _MAP),
}  # fmt: skip


def _anchor(name: str) -> Check:
    pattern = re.compile(name)
    return lambda value: "" if isinstance(value, str) and pattern.fullmatch(value) else "must be a plain name"


_NAME_2019, _NAME_2020 = _anchor("[A-Za-z][-A-Za-z0-9.:_]*"), _anchor("[A-Za-z_][-A-Za-z0-9._]*")
_SINCE: dict[Dialect, dict[str, Check | None]] = {
    Dialect.DRAFT4: {**dict.fromkeys(("id", "$schema"), _STRING), "definitions": _MAP},
    Dialect.DRAFT6: {"id": None, "$id": _STRING},
    Dialect.DRAFT2019: {
        "$recursiveAnchor": _BOOLEAN, "$anchor": _NAME_2019, "$defs": _MAP, "$vocabulary": _vocabulary,
        "contentSchema": None,
    },
    Dialect.DRAFT2020: {
        "$anchor": _NAME_2020, "$dynamicAnchor": _NAME_2020, "$recursiveRef": _STRING,
        "$recursiveAnchor": _NAME_2020,  # a name, as in the meta-schema
    },
}  # fmt: skip
"""The keywords without assertions, from a dialect on."""
_BY_DIALECT = {
    dialect: {name: _CHECKS.get(name) for name in names}
    | {name: check for since, checks in _SINCE.items() if since <= dialect for name, check in checks.items()}
    for dialect, names in ASSERTIONS.items()
}
_HOLD_NAMES = frozenset({"dependentRequired", "dependencies"})

_CHECKED, _TYPED, _NAMES_HELD, _NAMED, _SEVERAL, _ONE, _PATTERN = range(7)
"""How the value of a keyword is handled: it is only checked, or its parts are examined, too, in one of these ways."""
_ALWAYS_RIGHT: dict[Check, type[Any]] = {
    _number: int, _limit: int, _STRING: str, _BOOLEAN: bool, _LIST: list, _MAP: dict
}  # fmt: skip
"""Checks that all values of a type pass: for most values, the type alone tells."""
_Rule = tuple[type[Any] | None, Check | None, int]
"""The type of the values that need no check, or None; the check, or None if no value needs one; and what is done with
the values."""


def _rule(keyword: str, check: Check | None) -> _Rule:
    ways = (("type",), _HOLD_NAMES, MAPS_OF_SCHEMAS, LISTS_OF_SCHEMAS, SCHEMAS, ("pattern",))
    way = next((number for number, keywords in enumerate(ways, _TYPED) if keyword in keywords), _CHECKED)
    return check and _ALWAYS_RIGHT.get(check), check, way


_RULES = {
    dialect: {
        keyword: rule for keyword, check in checks.items() if (rule := _rule(keyword, check))[1:] != (None, _CHECKED)
    }
    for dialect, checks in _BY_DIALECT.items()
}
_NULLABLE = _rule("nullable", _BOOLEAN)
_TEXTS = frozenset({"type", "title", "description", "default"})
_REFERENCE_TEXTS = _TEXTS - {"type"} | {"$ref"}
_TEXT, _TYPES = frozenset({str}), frozenset(remedies.TYPE_NAMES)


_Place: TypeAlias = "tuple[Any, Dialect, _Place | Pointer, Path]"
"""A sub-schema to look at, its dialect, the place of the sub-schema around it and the tokens that lead on from there;
instead of a place, the first has its pointer in the document. (Plain tuples, as each sub-schema needs one.)"""


def _at(place: _Place, *tokens: str | int) -> Pointer:
    """The pointer to what is at ``tokens`` of a sub-schema."""
    parts, above = [(*place[3], *tokens)], place[2]
    while not isinstance(above, Pointer):  # bounded: by the depth of the document
        parts.append(above[3])
        above = above[2]
    return Pointer(above.path + pointer(tuple(chain.from_iterable(reversed(parts)))))


def check(root: Any, dialect: Dialect, seen: set[int] | None = None, where: Pointer | None = None) -> bool:
    """Refuse ``root``, a schema of ``dialect`` at ``where``, if a keyword of it or of a sub-schema is malformed.

    ``seen``: the identities of schemas that have been checked; those of this schema are added.

    Returns:
        Whether a quick test shows that all keywords mean something. If so, `ineffective_keywords` finds none.

    Raises:
        InvalidSpecError: a keyword is malformed; ``location`` is its JSON Pointer.
    """  # noqa: DOC501 - a function makes the error
    seen = set() if seen is None else seen
    places: list[_Place] = [(root, dialect, where or Pointer(), ())]
    has_nullable = isinstance(root, dict) and "$schema" not in root  # OpenAPI 3.0.3, which names no dialect
    all_clear = not isinstance(root, dict) or is_clear(
        {k: v for k, v in root.items() if k != "$schema"} if "$schema" in root else root, dialect
    )
    for place in places:  # bounded: by the document, once
        schema, dialect, _, tokens = place
        if not isinstance(schema, dict):
            keyword = str(tokens[0]) if tokens else ""
            if not isinstance(schema, bool) and keyword != "contentSchema":  # which asserts nothing
                help = remedies.schema(keyword, schema)
                raise InvalidSpecError(NOT_A_SCHEMA, location=_at(place), keyword=keyword, help=help)
            continue
        identity = id(schema)
        if identity in seen:
            continue
        seen.add(identity)
        if "$schema" in schema and schema is not root and _is_resource(schema, dialect):
            try:
                dialect = detect(schema, dialect)
            except SpecError:  # refused when it is reached
                continue
            place = schema, dialect, *place[2:]
        all_clear = all_clear and (schema is root or is_clear(schema, dialect))
        rules = _RULES[dialect]
        for keyword, value in schema.items():
            rule = rules.get(keyword)
            if rule is None:
                if not isinstance(keyword, str):
                    _check_keys(place, schema)
                if keyword != "nullable" or not has_nullable:
                    continue
                rule = _NULLABLE
            passes, wrong_with, way = rule
            if value.__class__ is not passes and wrong_with is not None:
                wrong = wrong_with(value)
                if wrong:
                    raise _malformed(place, (keyword,), wrong, remedies.remedy(keyword, value))
            if way == _TYPED:
                if value.__class__ is not str or value not in _TYPES:
                    _check_types(place, value)
            elif way == _NAMED:
                _check_named(place, keyword, value, places)
            elif way > _TYPED:
                _look_into(place, keyword, value, way, places)
    return all_clear


def _has_only_texts(schema: Any) -> bool:
    """Whether a sub-schema has a known type or a reference, and otherwise only texts about it: then it is right and
    clear in all dialects. Most sub-schemas are like this."""
    if schema.__class__ is not dict:
        return False
    texts = _REFERENCE_TEXTS
    if "$ref" not in schema:
        kind, texts = schema.get("type"), _TEXTS
        if kind.__class__ is not str or kind not in _TYPES:
            return False
        if len(schema) == 1:
            return True
    return texts.issuperset(schema) and _TEXT.issuperset(map(type, schema.values()))


def _is_resource(schema: dict[str, Any], dialect: Dialect) -> bool:
    """Whether the ``$schema`` of a sub-schema counts."""
    return isinstance(schema["$schema"], str) and identifier_of(schema, dialect) is not None


def _look_into(place: _Place, keyword: str, value: Any, way: int, places: list[_Place]) -> None:
    """Look at the names that the value of a keyword holds, and add the schemas in it to ``places``."""
    if way == _NAMES_HELD:
        _check_names(place, keyword, value, places)
    elif way == _SEVERAL and isinstance(value, list):
        places += [
            (child, place[1], place, (keyword, at)) for at, child in enumerate(value) if not _has_only_texts(child)
        ]
    elif way in (_ONE, _SEVERAL):
        if (way == _ONE or keyword in SCHEMAS) and not _has_only_texts(value):
            places.append((value, place[1], place, (keyword,)))
    elif not _may_be(place[0].get("type"), "string"):
        _check_pattern(place, (keyword,), keyword, value)


def _check_types(place: _Place, types: Any) -> None:
    if not isinstance(types, str) and (not isinstance(types, list) or not types):
        raise _malformed(place, ("type",), "must be a name or a non-empty list of names", remedies.types(types))
    for at, name in enumerate(types if isinstance(types, list) else (types,)):
        if name in remedies.TYPE_NAMES:
            continue
        tokens: Path = ("type", at) if isinstance(types, list) else ("type",)
        if not isinstance(name, str):
            help = 'write "null"' if name is None else remedies.types(name)
            raise _malformed(place, tokens, f"must contain names, not {'null' if name is None else repr(name)}", help)
        raise InvalidSpecError(
            f"unknown type {name!r}",
            location=_at(place, *tokens),
            keyword="type",
            code="unknown_type",
            help=remedies.type_name(name),
        )


def _check_names(place: _Place, keyword: str, value: dict[str, Any], places: list[_Place]) -> None:
    """Check the keys that each key requires: a list of names, or perhaps a schema in ``dependencies``."""
    _check_keys(place, value, keyword)
    for name, needed in value.items():
        if keyword == "dependencies" and not isinstance(needed, list):
            places.append((needed, place[1], place, (keyword, name)))
        elif _names(needed):
            raise _malformed(place, (keyword, name), f"of {name!r} {_NAMES}", remedies.names(needed))


def _check_named(place: _Place, keyword: str, value: dict[str, Any], places: list[_Place]) -> None:
    _check_keys(place, value, keyword)
    if keyword == "patternProperties" and not _may_be(place[0].get("type"), "object"):
        for name in value:
            _check_pattern(place, (keyword, name), keyword, name)
    places += [(child, place[1], place, (keyword, name)) for name, child in value.items() if not _has_only_texts(child)]


def _check_keys(place: _Place, value: dict[Any, Any], *keyword: str) -> None:
    """Refuse keys that are not strings, of the schema at ``place`` or of the value of its ``keyword``."""
    if _TEXT.issuperset(map(type, value)):  # as in every JSON text
        return
    for name in value:
        if not isinstance(name, str):
            wrong = f"the key {name!r} is not a string"
            raise InvalidSpecError(wrong, location=_at(place, *keyword), keyword="".join(keyword))


def _may_be(types: Any, name: str) -> bool:
    return types is None or types == name or (isinstance(types, list) and name in types)


def _check_pattern(place: _Place, tokens: Path, keyword: str, pattern: str) -> None:
    """Refuse a pattern that no reader reads, because of the type, if it is not a regular expression."""
    try:
        parse(pattern, "ecma")
    except InvalidSpecError as error:
        location = _at(place, *tokens)
        raise InvalidSpecError(f"{keyword} {pattern!r}: {error.message}", location=location, keyword=keyword) from None
    except SpecError:  # it is valid but cannot be enforced, and need not be
        pass


def _malformed(place: _Place, tokens: Path, wrong: str, help: str) -> InvalidSpecError:
    keyword = str(tokens[0])
    where = _at(place, *tokens)
    return InvalidSpecError(f"{keyword} {wrong}", location=where, keyword=keyword, help=help)
