"""What to write instead of a malformed keyword, if its value shows what was meant.

``"minLength": "3"`` needs no quotes, ``"additionalProperties": "string"`` is the name of a type, and null from a
generator is a keyword that it should have left out. A remedy is what can be written in that place, not an explanation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, NUMERIC
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.suggestions import did_you_mean

TYPE_NAMES = ("null", "boolean", "number", "integer", "string", "array", "object")
LEAVE_OUT = "leave it out"
_OTHER_LANGUAGES = {
    **dict.fromkeys(("str", "text", "char", "varchar"), "string"),
    **dict.fromkeys(("int", "long", "short", "int32", "int64", "uint", "bigint"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "numeric", "real"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("list", "tuple", "set", "sequence", "vector"), "array"),
    **dict.fromkeys(("dict", "map", "record", "struct", "mapping", "json"), "object"),
    **dict.fromkeys(("none", "nil", "nonetype", "undefined", "void"), "null"),
}
"""Names that other languages have for a JSON type, in lower case."""
_ANY = ("any", "unknown", "mixed", "*")
_FORMATS = {
    **dict.fromkeys(("datetime", "timestamp"), "date-time"),
    **dict.fromkeys(("url", "link", "href"), "uri"),
    **dict.fromkeys(("mail", "e-mail"), "email"),
    **dict.fromkeys(("guid", "uuid4"), "uuid"),
    "ip": "ipv4",
    "timedelta": "duration",
}
"""Names for formats that people write as types, in addition to the names of the formats."""
_ALTERNATIVES = re.compile(r"\s*(?:\||,|/|\bor\b)\s*")
_LIST_OF = re.compile(r"(?:list|array|sequence|set|tuple)\s*[\[<(](.+)[\]>)]|\[(.+)\]|(.+)\[\]", re.IGNORECASE)
_OPTIONAL = re.compile(r"(?:optional|nullable|maybe)\s*[\[<(](.+)[\]>)]|(.+)\?", re.IGNORECASE)
_COUNTS = re.compile("(?:min|max)(?:Length|Items|Properties|Contains)")
_BOOLEANS = ("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable")
_OFTEN_BOOLEAN = ("additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_COLLECTIONS = (Mapping, tuple, set, frozenset)
_MOST = 60  # characters of JSON in a remedy


def remedy(keyword: str, value: Any) -> str:
    """What to write instead of ``value``, which ``keyword`` cannot have; "" if it does not show what was meant."""
    if value is None:
        return LEAVE_OUT
    if keyword in NUMERIC or _COUNTS.fullmatch(keyword):
        return _number(keyword, value)
    if keyword in _BOOLEANS:
        meant = _boolean(value)
        return "" if meant is None else f"write {_json(meant)}{' without quotes' if isinstance(value, str) else ''}"
    if keyword == "required":
        return _required(value)
    if keyword == "dependentRequired":
        return 'write {"a": ["b"]}: where "a" is, "b" must be, too'
    if keyword in _LISTS_OF_SCHEMAS:
        if value == []:
            return LEAVE_OUT
        return f"write a list: {_json([value])}" if isinstance(value, Mapping) else ""
    if keyword in ("enum", "examples"):
        return f"write a list: {_json([*value] if isinstance(value, _COLLECTIONS) else [value])}"
    if keyword in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
        return _named(value)
    if keyword in ("pattern", "format") and isinstance(value, list):
        return f'write anyOf, with a branch for each: {{"anyOf": [{{"{keyword}": …}}, …]}}'
    if keyword == "$ref" and isinstance(value, Mapping):
        return "write the schema itself in the place of the object that holds $ref"
    return ""


def names(value: Any) -> str:
    """What to write instead of ``value`` in ``dependentRequired``, where a list of names belongs."""
    if value is None:
        return LEAVE_OUT
    if isinstance(value, str):
        return f"write a list: {_json([value])}"
    return "a schema goes into dependentSchemas" if isinstance(value, (Mapping, bool)) else ""


def schema(keyword: str, value: Any) -> str:
    """What to write instead of ``value`` in ``keyword``, where a schema belongs."""
    if value is None:
        return f'{LEAVE_OUT}; the schema of null is {{"type": "null"}}'
    meant = _boolean(value) if isinstance(value, str) or keyword in _OFTEN_BOOLEAN else None
    if meant is not None:
        return f"write {_json(meant)}{' without quotes' if isinstance(value, str) else ''}"
    if isinstance(value, str):
        said = _said(value)
        if said:
            return f"write {{{said}}}"
        if " " in value.strip():  # a sentence about the value
            return f'write {{"description": {_json(value)}}}, with a "type"'
        return f'write {{"$ref": {_json(value)}}}' if value.startswith("#") else f'write {{"const": {_json(value)}}}'
    if isinstance(value, list):
        if keyword == "dependentSchemas":
            return "a list of names goes into dependentRequired"
        if value and all(isinstance(name, str) and name in TYPE_NAMES for name in value):
            return f'write {{"type": {_json(value)}}}'
        if value and all(isinstance(child, (Mapping, bool)) for child in value):
            return 'write {"anyOf": […]} for a choice of schemas'
        return f'write {{"enum": {_json(value)}}}' if value else "write {} to allow any value"
    return f'write {{"const": {_json(value)}}}' if isinstance(value, (int, float)) else ""


def type_name(name: str) -> str:
    """What to write instead of the type ``name``."""
    if name.strip().lower() in _ANY:
        return "leave type out to allow any value"
    if name == "structural_tag":
        return (
            "it is a structural tag: send it as structured_outputs.structural_tag (dotllm check: --kind structural_tag)"
        )
    said = _said(name)
    if said:
        return f"write {said}"
    if any(name in known for known in ASSERTIONS.values()):
        return f'"{name}" is itself a keyword: write "{name}": …, and leave type out'
    return did_you_mean(name, TYPE_NAMES) or f"the types are {', '.join(TYPE_NAMES)}"


def is_known(name: str) -> bool:
    """Whether a type has this name, or one close to it, in some notation."""
    return bool(_said(name) or did_you_mean(name, TYPE_NAMES))


def types(value: Any) -> str:
    """What to write instead of ``value``, which is neither the name of a type nor a list of names."""
    if value is None:
        return 'leave it out to allow any value; the type of null is "null", in quotes'
    if value == []:
        return "leave it out to allow any value"
    if isinstance(value, Mapping):
        return "a schema goes in the place of the object that holds type, or into anyOf"
    return f"the types are {', '.join(TYPE_NAMES)}"


def _said(name: str) -> str:
    """The keywords that mean the same as the type ``name`` of another notation; "" if that is unknown."""
    bare = name.strip()
    known = _type(bare)
    if known:
        return f'"type": "{known}"'
    form = _FORMATS.get(bare.lower(), bare.lower())
    if form in formats.FORMATS:
        return f'"type": "string", "format": "{form}"'
    several = [part for part in _ALTERNATIVES.split(bare) if part]
    optional = _OPTIONAL.fullmatch(bare)
    if optional is not None:
        several = [optional[1] or optional[2], "null"]
    if len(several) > 1:
        result = [_type(part.strip("\"' ")) for part in several]
        return f'"type": {_json([*dict.fromkeys(result)])}' if all(result) else ""
    inside = _LIST_OF.fullmatch(bare)
    if inside is not None:
        item = _said(next(part for part in inside.groups() if part))
        return f'"type": "array", "items": {{{item}}}' if item else ""
    return ""


def _type(name: str) -> str:
    """JSON Schema's name of a type that is called ``name`` there or elsewhere; "" if there is none."""
    lower = name.lower()
    return lower if lower in TYPE_NAMES else _OTHER_LANGUAGES.get(lower, "")


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, int) and value in (0, 1) else None


def _number(keyword: str, value: Any) -> str:
    if not isinstance(value, str):
        return ""
    try:
        number = json.loads(value)
    except ValueError:
        return ""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return ""
    return f'write the number without quotes: "{keyword}": {value.strip()}'


def _required(value: Any) -> str:
    if isinstance(value, bool):
        return 'a property is required if "required" of the object around it lists its name'
    if isinstance(value, str):
        return f"write a list: {_json([value])}"
    if isinstance(value, Mapping):
        return f"write a list: {_json([name for name, said in value.items() if said])}"
    return "" if not isinstance(value, list) else "write each name as a string"


def _named(value: Any) -> str:
    if isinstance(value, list):
        first = next((item for item in value), None)
        name = first.get("name") if isinstance(first, Mapping) else first
        return f"write {{{_json(name)}: {{…}}, …}}, by name" if isinstance(name, str) else "write {} if there are none"
    return ""


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST else text[:_MOST] + "…"
