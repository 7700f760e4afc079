"""Finds keywords that mean nothing in their place: misspelt keywords, keywords for values of another type, annotations
with a value of the wrong type.

The standard tells validators to ignore keywords that they do not know (JSON Schema Core 2020-12 §4.3.1), and keywords
for strings if the value is a number (§7.6.1); the compiler does so, too. The author of ``"requierd": ["name"]`` or of
``"maxLength": 3`` in an array still wants to know, so ``dotllm check`` and the server use this module. A schema in
which no keyword is known is refused: it is an example or a wrapper, and would allow any value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from dotllm.errors import InvalidSpecError, Pointer, SpecError
from dotllm.languages.json_schema.guidance_options import KEYWORD
from dotllm.languages.json_schema.reading import remedies
from dotllm.languages.json_schema.reading.dialect import (
    ARRAYS,
    ASSERTIONS,
    NUMERIC,
    OBJECTS,
    STRINGS,
    Dialect,
    dialect_named,
    lacks_number_sign,
)
from dotllm.languages.json_schema.reading.remedies import TYPE_NAMES
from dotllm.languages.json_schema.reading.subschemas import (
    ANNOTATIONS,
    HOLDING,
    equal_branches,
    pointer,
    reached,
    subschemas,
    values_in,
)
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.suggestions import closest, did_you_mean, is_slip

_OF_OPENAPI = frozenset({"discriminator", "xml", "externalDocs", "example"})
"""The annotations that OpenAPI adds (3.1.0 §4.8.24.2). Pydantic writes ``discriminator`` into tagged unions."""
_STRUCTURE = frozenset(
    {"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions"}
)
_CONTENT = frozenset({"contentEncoding", "contentMediaType", "contentSchema"})
_NO_ASSERTIONS = ANNOTATIONS | _STRUCTURE | _CONTENT | _OF_OPENAPI
_SAYING = frozenset().union(*ASSERTIONS.values(), _STRUCTURE, _CONTENT) - {"$schema", "$id", "id"}
_KNOWN = _SAYING | _NO_ASSERTIONS
_REMEDIES = {
    "nullable": 'it is OpenAPI 3.0; JSON Schema says {"type": ["string", "null"]}',
    "optional": 'a property is optional unless "required" of its object names it',
}
_TYPES_OF = {
    **dict.fromkeys(NUMERIC, ("number", "integer")),
    **dict.fromkeys(STRINGS, ("string",)),
    **dict.fromkeys(ARRAYS | {"unevaluatedItems"}, ("array",)),
    **dict.fromkeys(OBJECTS | {"unevaluatedProperties", "dependentSchemas"}, ("object",)),
}
"""The types of values that a keyword is about."""
_NEEDS = {
    **dict.fromkeys(("then", "else"), "if"),
    **dict.fromkeys(("minContains", "maxContains"), "contains"),
}
_BETWEEN = {"int32": 31, "int64": 63}
"""OpenAPI's formats for signed integers, with the number of bits without the sign."""
_NOT_ENFORCED = {
    "jwt": "its parts are JSON in base64url, which is not regular; a pattern can say that there are three",
    "json-string": "the content of a string is not checked",
    "password": "it is a hint of OpenAPI for forms",
    "binary": "it is OpenAPI's name for any bytes",
    "byte": 'it is OpenAPI\'s name for base64; write "format": "base64"',
    "decimal": "it is a library's name for a number in a string; write a pattern",
    "multi-host-uri": "it is Pydantic's name for the addresses of several hosts; write a pattern",
    **dict.fromkeys(("cuid", "cuid2", "ulid", "nanoid", "ksuid", "xid"), "it is a library's format; write its pattern"),
    **dict.fromkeys(("path", "file-path", "directory-path"), "whether a path exists is not known here"),
}
"""Formats from elsewhere, which are not misspellings."""
_DEPEND = (
    frozenset({*_NEEDS, "exclusiveMinimum", "exclusiveMaximum", "oneOf", "if", "additionalItems", "format"}) | _CONTENT
)
"""Keywords whose value or neighbours decide whether they mean something."""


_ITS_VALUES = "values"


def _meant(dialect: Dialect, about: str | None) -> frozenset[str]:
    """The keywords that, whatever their values, mean something or are meant to mean nothing: next to the type
    ``about``, no type (None), values without a type, or a ``$ref`` that hides other keywords."""
    apart = _DEPEND | {"$schema"} | ({"$ref", "$defs"} if dialect < Dialect.DRAFT2019 else set())
    if about == "$ref":
        return (_NO_ASSERTIONS - apart) | {about}
    return frozenset(
        keyword
        for keyword in (ASSERTIONS[dialect] | _NO_ASSERTIONS) - apart
        if about is None or about in _TYPES_OF.get(keyword, (*TYPE_NAMES, _ITS_VALUES))
    )


_MEANT = {
    dialect: {about: _meant(dialect, about) for about in (*TYPE_NAMES, _ITS_VALUES, "$ref", None)}
    for dialect in Dialect
}


_WITH_PATTERNS = frozenset(
    {"starts_with", "ends_with", "includes", "lowercase", "uppercase", "emoji", "e164", "mac", "cidrv4", "cidrv6"}
    | {"cuid", "cuid2", "ulid", "nanoid", "ksuid", "xid", "guid", "hex", "template_literal", "decimal"}
    | {f"{name}_{spelling}" for name in ("md5", "sha1", "sha256", "sha384", "sha512")
       for spelling in ("hex", "base64", "base64url")}
)  # fmt: skip
"""Names of zod 4 and drf-spectacular, which write the pattern that a name means next to it, or several in allOf."""
# The keywords that only describe a value, with the types that the meta-schemas ask of them. They never make a document
# invalid (JSON Schema Validation 2020-12 §8 and §9), and published schemas have a list of lines as ``description`` or
# null as ``title``. So a value of the wrong type is not refused: the keyword counts as absent, with a warning.
_ANNOTATION_TYPES_SINCE: dict[Dialect, dict[str, type[Any]]] = {
    Dialect.DRAFT4: {"title": str, "description": str},
    Dialect.DRAFT6: {"examples": list},
    Dialect.DRAFT7: {"$comment": str, "contentEncoding": str, "contentMediaType": str, "readOnly": bool},
    Dialect.DRAFT2019: {"deprecated": bool, "writeOnly": bool},
}
_ANNOTATION_TYPES: dict[Dialect, dict[str, type[Any]]] = {
    dialect: {
        name: kind
        for since, types in _ANNOTATION_TYPES_SINCE.items()
        if since <= dialect
        for name, kind in types.items()
    }
    for dialect in Dialect
}
_WANTED = {str: "a string", bool: "a boolean", list: "a list"}
_LISTS = ("allOf", "anyOf", "oneOf")
_LONG = 64  # characters; longer keywords misspell none
_MARKS = ("$", "_", "@")
"""Characters with which tools mark keywords as their own."""
_DEEPEST = 4  # levels of a wrapper that are searched


class Ineffective(NamedTuple):
    """A keyword, or the name of a format, that asserts nothing."""

    pointer: str
    """JSON Pointer (RFC 6901) of the keyword."""
    message: str


def ineffective_keywords(schema: Any, default_dialect: str = "2020-12") -> Iterator[Ineffective]:
    """Find the keywords without meaning in ``schema`` (a result of `json.loads`), which need not be valid.

    Names that begin with ``x-`` are extensions by convention, and left alone.

    Yields:
        Each such keyword, in the order of the text; none for a wrapper (`says_something`).

    Raises:
        InvalidSpecError: ``default_dialect`` is not a known dialect.
    """
    try:
        says_something(schema)
    except InvalidSpecError:
        if _schema_inside(schema) or schema.get("type") == "structural_tag":  # a wrapper has no keywords
            return
    has_dialect = isinstance(schema, dict) and "$schema" in schema
    held: frozenset[str] | None = None
    for node, path, dialect in subschemas(schema, dialect_named(default_dialect), _is_plain):
        if is_clear(node, dialect):
            continue
        malformed = _malformed(node, dialect)
        types, are_read = None, False
        is_reference = "$ref" in node and dialect < Dialect.DRAFT2019
        for keyword, value in node.items():
            message = _about(keyword, dialect)
            if message is not None and not path:  # references may lead into it
                held = _referred_to(schema) if held is None else held
                message = None if keyword in held else message
            if keyword in malformed:
                message = _about_malformed(keyword, value, dialect)
            elif keyword == "$ref" and lacks_number_sign(value):
                is_read = "$id" not in schema and reached(schema, unquote(value)) is not None
                message = None if not is_read else f"$ref {value!r} is read as '#{value}'; write that"
            elif keyword == "nullable" and not has_dialect:
                message = _about_nullable(node) if value is True else None
            elif keyword == KEYWORD and path:
                message = f"{KEYWORD!r} has effect only at the root of a schema; move it there"
            elif message is None and keyword in ASSERTIONS[dialect]:
                if is_reference:
                    message = None if keyword == "$ref" else f"{keyword!r} is ignored next to $ref in {dialect.uri}"
                else:
                    if not are_read and keyword in _TYPES_OF:
                        types, are_read = _types_of(node), True
                    message = (
                        _about_type(keyword, value, types)
                        or _about_neighbours(keyword, value, node)
                        or (_about_format(value, node) if keyword == "format" and isinstance(value, str) else None)
                    )
            elif message is None and keyword in _CONTENT:
                message = _about_content(keyword, value, node, dialect)
            if message is not None:
                yield Ineffective(pointer((*path, keyword)), message)


def _is_plain(schema: Any, dialect: Dialect) -> bool:
    """Whether a sub-schema is clear and holds no others."""
    return schema.__class__ is dict and HOLDING.isdisjoint(schema) and is_clear(schema, dialect)


def is_clear(node: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether ``node`` has only keywords that mean something. Nearly all sub-schemas have, and this test is quick."""
    about: Any = node.get("type")
    if "$ref" in node and lacks_number_sign(node["$ref"]):
        return False
    if "$ref" in node and dialect < Dialect.DRAFT2019:
        about = "$ref"
    elif "enum" in node or "const" in node:
        about = _ITS_VALUES if about is None else about
    elif about.__class__ is list and all(name.__class__ is str for name in about):
        about = tuple(about)
    if about is None or about.__class__ is str:
        meant = _MEANT[dialect].get(about, frozenset())
    elif about.__class__ is tuple:
        meant = _meant_of_several(dialect, about)
    else:
        return False
    if not meant.issuperset(node):
        name: Any = node.get("format")
        is_only_format = name.__class__ is str and about in ("string", None) and node.keys() - meant == {"format"}
        if not is_only_format or not _is_known(name):
            return False
    return not _malformed(node, dialect)


def _malformed(node: Mapping[str, Any], dialect: Dialect) -> list[str]:
    """The annotations of ``node`` that have a value of the wrong type."""
    types = _ANNOTATION_TYPES[dialect]
    return [name for name in types.keys() & node.keys() if not isinstance(node[name], types[name])]


@lru_cache(maxsize=64)
def _meant_of_several(dialect: Dialect, types: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*(_MEANT[dialect].get(name, frozenset()) for name in types))


def looks_like_schema(value: Any) -> bool:
    """Whether a JSON value is meant as a schema, right or wrong: it has keywords that nothing else has, or all its
    names are keywords."""
    if not isinstance(value, dict):
        return value is None or isinstance(value, bool)  # None: nested too deeply to read
    if _has_telling_keyword(value):
        return True
    kind = value.get("type")
    is_other_type = isinstance(kind, str) and not remedies.is_known(kind)
    if not is_other_type and all(name in _KNOWN or name.startswith("x-") for name in value):
        return True
    telling = {"type", "properties", *_LISTS}
    misspelled = {closest(name, telling): inner for name, inner in value.items() if inner and name not in _KNOWN}
    return _has_telling_keyword({name: inner for name, inner in misspelled.items() if name})


def _has_telling_keyword(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return bool(
        {"$schema", "$ref", "$defs", "$anchor"} & value.keys()
        or any(name in TYPE_NAMES for name in kinds if isinstance(name, str))
        or (isinstance(value.get("properties"), dict) and all(map(_is_schema_object, value["properties"].values())))
        or any(isinstance(value.get(name), list) and all(map(_is_schema_object, value[name])) for name in _LISTS)
    )


def _is_schema_object(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _referred_to(root: Any) -> frozenset[str]:
    """The first name of each reference into ``root``, wherever in ``root`` the reference is."""
    references = [value.get("$ref") for value in values_in(root) if isinstance(value, dict)]
    return frozenset(text.split("/")[1] for text in references if isinstance(text, str) and text.startswith("#/"))


def says_something(root: Any) -> None:
    """Refuse a value that would allow everything because it is not a schema: an example (``{"name": "string"}``), or a
    schema wrapped up as in a request (``{"name": …, "schema": {…}}``). Sub-schemas may be like this;
    `ineffective_keywords` names them.

    Raises:
        InvalidSpecError: ``root`` is such a value; ``help`` says what to write.
    """
    if not isinstance(root, dict):
        return
    kind = root.get("type")
    if kind == "structural_tag":
        wrong, at = f"unknown type {kind!r}", Pointer("/type")
        help = remedies.type_name(kind)
        raise InvalidSpecError(wrong, location=at, keyword="type", code="unknown_type", help=help)
    is_type_of_wrapper = isinstance(kind, str) and kind not in TYPE_NAMES
    if not is_type_of_wrapper and not _SAYING.isdisjoint(root):
        return
    if not all(isinstance(name, str) for name in root):
        return  # refused as such
    if all(name in _KNOWN or name.startswith("x-") for name in root):
        return
    inside = _schema_inside(root)
    if is_type_of_wrapper:
        if not _SAYING.isdisjoint(root.keys() - {"type"}) or not inside:
            return  # an unknown type, which is refused as such
        raise InvalidSpecError(
            f"unknown type {kind!r}", location=Pointer("/type"), keyword="type", code="unknown_type", help=_pass(inside)
        )
    fields = [name for name, value in root.items() if isinstance(value, dict) and _is_schema(value)]
    is_map_of_fields = len(fields) > 1 or (fields == [*root] and "properties" not in root[fields[0]])
    unknown = [name for name in root if name in fields or name not in _KNOWN]
    value = root[unknown[0]]
    kind_of_field = value.get("type") if isinstance(value, dict) else value
    written = json.dumps(
        {"type": kind_of_field if isinstance(kind_of_field, str) and kind_of_field in TYPE_NAMES else "string"}
    )
    example = f'write {{"type": "object", "properties": {{{_quoted(unknown[0])}: {written}, …}}}}'
    raise InvalidSpecError(
        f"no JSON Schema keyword here constrains a value; found {', '.join(map(_quoted, unknown[:5]))} instead",
        location=Pointer(),
        help=_pass(inside) if inside and not is_map_of_fields else example,
    )


def _pass(inside: str) -> str:
    return f"pass what is under {inside}"


def _quoted(name: str) -> str:
    return f'"{name[:40]}"'


def _schema_inside(root: Mapping[str, Any]) -> str:
    """The JSON Pointer of the outermost schema inside ``root``, itself not a schema; "" if there is none."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    for value, path in pending:  # bounded: by the document, for an error
        if path and _is_schema(value):
            return pointer(path)
        if len(path) < _DEEPEST:
            pending += [(child, (*path, name)) for name, child in value.items() if isinstance(child, dict)]
    return ""


def _is_schema(value: Mapping[str, Any]) -> bool:
    """Whether an object looks like a schema."""
    kind = value.get("type", "object")
    says = {"type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"} & value.keys()
    return bool(says) and (isinstance(kind, list) or (isinstance(kind, str) and kind in TYPE_NAMES))


def _about(keyword: str, dialect: Dialect) -> str | None:
    """Why ``keyword`` asserts nothing, with what was probably meant; None if it means something."""
    if keyword in ASSERTIONS[dialect] or keyword in _NO_ASSERTIONS or keyword.startswith("x-"):
        return None
    if keyword in _REMEDIES:
        return f"{keyword!r} is not a keyword of JSON Schema: {_REMEDIES[keyword]}"
    if any(keyword in known for known in ASSERTIONS.values()):
        return f"{keyword!r} is not a keyword of {dialect.uri}, the schema's dialect"
    meant = _similar(keyword, dialect) if len(keyword) <= _LONG else ""
    return f"{keyword!r} is not a keyword of JSON Schema{meant and '; '}{meant}"


@lru_cache(maxsize=1024)  # tools repeat their own keywords
def _similar(keyword: str, dialect: Dialect) -> str:
    """The suggestion of the keyword that ``keyword`` misspells; "" if it does not look like a slip of the pen.

    Published schemas have keywords of their own: ``$default`` and ``_format`` are marked, ``propertyOrder`` is a word.
    """
    meant = closest(keyword, _known(dialect))
    is_marked = keyword[:1] in _MARKS and not (meant or "").startswith(keyword[:1])
    return "" if meant is None or is_marked or not is_slip(keyword, meant) else f'did you mean "{meant}"?'


def _known(dialect: Dialect) -> frozenset[str]:
    return ASSERTIONS[dialect] | _NO_ASSERTIONS


def _about_malformed(keyword: str, value: Any, dialect: Dialect) -> str:
    wanted = _WANTED[_ANNOTATION_TYPES[dialect][keyword]]
    help = remedies.remedy(keyword, value)
    return f"{keyword!r} must be {wanted}, and is ignored{help and '; '}{help}"


def _about_nullable(node: Mapping[str, Any]) -> str | None:
    """OpenAPI 3.0.3: ``nullable`` adds null to the ``type`` next to it, and nothing to ``enum``."""
    if "type" not in node:
        return '\'nullable\' adds null to the type next to it, and there is none; write anyOf with {"type": "null"}'
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if isinstance(values, list) and None not in values:
        return "'nullable' adds null to the type, not to enum or const, which must list null, too"
    return None


def _types_of(node: Mapping[str, Any]) -> frozenset[str] | None:
    """The types that values of ``node`` can have by its own type, enum and const; None if these say nothing."""
    types = node.get("type")
    said = None
    if isinstance(types, (str, list)):
        said = frozenset(name for name in ([types] if isinstance(types, str) else types) if isinstance(name, str))
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if isinstance(values, list):
        kinds = frozenset(name for value in values for name in _names_of_type(value))
        said = kinds if said is None else said & kinds
    return said


def _names_of_type(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, (str, list, dict)):
        return ({str: "string", list: "array", dict: "object"}[type(value)],)
    return ("null",) if value is None else ("number", "integer")


def _about_type(keyword: str, value: Any, types: frozenset[str] | None) -> str | None:
    about = _TYPES_OF.get(keyword)
    if about is None or types is None or not types or not types.isdisjoint(about):
        return None
    allowed = " or ".join(sorted(types))
    bits = _BETWEEN.get(value) if keyword == "format" and "integer" in types and isinstance(value, str) else None
    if bits:
        return f'the format {value!r} is not enforced; write "minimum": {-(1 << bits)}, "maximum": {(1 << bits) - 1}'
    return f"{keyword!r} applies to values of type {about[0]} and has no effect on type {allowed}"


def _about_neighbours(keyword: str, value: Any, node: Mapping[str, Any]) -> str | None:
    needed = _NEEDS.get(keyword)
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and value is True:
        needed = keyword.removeprefix("exclusive").lower()
    if needed is not None and needed not in node:
        return f"{keyword!r} asserts nothing without {needed!r}"
    if keyword == "oneOf" and isinstance(value, list):
        same = equal_branches(value)
        if same is not None:
            return (
                f"branches {same[0]} and {same[1]} of oneOf are equivalent, so a value that fits them is never "
                "allowed; write anyOf"
            )
    if keyword == "if" and "then" not in node and "else" not in node:
        return "'if' asserts nothing without 'then' or 'else'"
    if keyword == "additionalItems" and not isinstance(node.get("items"), list):
        return "'additionalItems' asserts nothing without a list of schemas in 'items'"
    return None


def _parts(node: Mapping[str, Any]) -> list[Any]:
    """The entries of a schema's allOf."""
    parts = node.get("allOf")
    return parts if isinstance(parts, list) else []


def _about_content(keyword: str, value: Any, node: Mapping[str, Any], dialect: Dialect) -> str | None:
    """The message about an encoding or a structure that only an annotation asks for (JSON Schema Validation 2020-12
    §8). A media type alone, such as an image's, asks nothing of the text; a format or a pattern next to it may say
    everything."""
    if dialect < Dialect.DRAFT7 or "pattern" in node or "format" in node:
        return None
    if keyword == "contentEncoding" and value in ("base64", "base64url"):
        return f'\'contentEncoding\' asserts nothing; write "format": "{value}"'
    is_json = keyword == "contentMediaType" and value == "application/json" and "contentSchema" not in node
    if is_json or keyword == "contentSchema":
        return f"{keyword!r} asserts nothing: the content of a string is not checked; write the value without it"
    return None


def _about_format(name: str, node: Mapping[str, Any]) -> str | None:
    if name in _WITH_PATTERNS and any("pattern" in part for part in (node, *_parts(node)) if isinstance(part, dict)):
        return None
    if _is_known(name):
        return None
    if name in _NOT_ENFORCED:
        return f"the format {name!r} is not enforced: {_NOT_ENFORCED[name]}"
    meant = did_you_mean(name, formats.FORMATS)
    return f"the format {name!r} is not known and asserts nothing{meant and '; '}{meant}"


def _is_known(format: str) -> bool:
    try:
        return formats.find(format) is not None
    except SpecError:  # the compiler refuses it, with its place
        return True
