"""What to write instead of a value that a keyword of JSON Schema forbids."""

from __future__ import annotations

import json
import re
from typing import Any

from dotllm.languages.json_schema.reading.document import below
from dotllm.languages.json_schema.reading.keyword_groups import ARRAYS, OBJECTS
from dotllm.suggestions import closest

_LIMITS = {
    "minimum": "write a number of at least {}",
    "maximum": "write a number of at most {}",
    "exclusiveMinimum": "write a number above {}",
    "exclusiveMaximum": "write a number below {}",
    "multipleOf": "write a multiple of {}",
    "minLength": "write at least {} characters",
    "maxLength": "write at most {} characters",
    "pattern": "write a text that matches {}",
    "format": "write a text of the format {}",
    "minItems": "write at least {} items",
    "maxItems": "write at most {} items",
    "uniqueItems": "write no two equal items",
    "minProperties": "write at least {} properties",
    "maxProperties": "write at most {} properties",
    "minContains": "write at least {} items of contains",
    "maxContains": "write at most {} items of contains",
}
_TYPES = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))


_ARTICLES = {name: f"an {name}" if name[0] in "aio" else f"a {name}" for _, name in _TYPES} | {"null": "null"}


CLOSING = ("additionalProperties", "unevaluatedProperties")
"""Keywords that are false where an object has no other properties."""


def instance(keyword: str, pointer: str, document: Any) -> tuple[str, Any]:
    """The value that ``keyword`` is about, with its JSON Pointer: the one at ``pointer``, or the object or array around
    it."""
    kind: type | None = None
    if keyword in OBJECTS or keyword in ("unevaluatedProperties", "dependentSchemas"):
        kind = dict
    elif keyword in ARRAYS or keyword == "unevaluatedItems":
        kind = list
    value = _value_at(document, pointer)
    while kind is not None and pointer and not isinstance(value, kind):
        pointer = pointer.rpartition("/")[0]
        value = _value_at(document, pointer)
    return pointer, value


def _value_at(value: Any, pointer: str) -> Any:
    """None where there is nothing, as there may be nothing of a key that comes twice."""
    for token in pointer.split("/")[1:]:
        found = below(value, token)
        if found is None:
            return None
        (value,) = found
    return value


def remedy(keyword: str, wanted: Any, found: Any, schema: dict[str, Any], forced: str) -> str:
    """What to write instead of ``found``, which ``keyword`` with its value ``wanted`` forbids. ``schema`` has the
    keyword; ``forced``: the text that must come next there."""
    if keyword in _LIMITS:
        text = _LIMITS[keyword].format(_json(wanted))
        is_one = wanted == 1 and wanted is not True and text.endswith("s")
        return text.replace("properties", "property").removesuffix("s") if is_one else text
    if keyword == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        return f"write {_listed([_ARTICLES[name] for name in names])}, or allow {_json(_type_of(found))} in type"
    if keyword in ("enum", "const"):
        values = wanted if keyword == "enum" else [wanted]
        meant = closest(found, [one for one in values if isinstance(one, str)]) if isinstance(found, str) else None
        return f"did you mean {_json(meant)}?" if meant else f"write {_listed([_json(one) for one in values])}"
    if keyword == "required" and isinstance(found, dict):
        missing = [name for name in wanted if name not in found]
        if missing:
            misspelt = closest(missing[0], found.keys() - schema.get("properties", {}).keys())
            meant = f"; is {_json(misspelt)} meant to be it?" if misspelt else ""
            return f"add {', '.join(_json(name) for name in missing[:5])}{meant}"
    if keyword in CLOSING and isinstance(found, dict):
        return _about_extra_keys(found, schema)
    if forced:
        return f"go on with {_json(forced)}"
    return "change the value, or the keyword"


def _about_extra_keys(found: dict[str, Any], schema: dict[str, Any]) -> str:
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [name for name in found if name not in declared and not any(_matches(one, name) for one in patterns)]
    for name in extra:
        near = closest(name, [one for one in declared if one not in found])
        if near:
            return f"did you mean {_json(near)} instead of {_json(name)}?"
    return f"leave out {_json(extra[0])}, or name it in properties" if extra else "leave out the property"


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # ECMA-262 has more than Python
        return False


def _type_of(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "null")


def _listed(names: list[str]) -> str:
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:7])}{' …' if len(names) > 7 else ''}".replace(f", {names[-1]}", f" or {names[-1]}")
    )


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:60] + "…"
