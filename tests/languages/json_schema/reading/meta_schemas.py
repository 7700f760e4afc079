"""Whether dotllm and the meta-schemas (by `jsonschema`) disagree about a schema, with the exceptions listed here."""

from __future__ import annotations

from random import Random
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema.reading import meta_schema
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect, detect
from dotllm.languages.json_schema.reading.subschemas import MAPS_OF_SCHEMAS

KEYWORDS = sorted(
    ASSERTIONS[Dialect.DRAFT2020]
    | {"title", "description", "$comment", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding"}
    | {"contentSchema", "contentMediaType", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$vocabulary"}
    | {"$recursiveRef", "$recursiveAnchor", "default", "x-order", "nullable"}
)
_DESCRIBING = {"title", "description", "$comment", "examples", "deprecated", "readOnly", "writeOnly"} | {
    "contentEncoding", "contentMediaType", "contentSchema",
}  # fmt: skip
VALUES: list[Any] = [
    *(None, True, False, 0, 5, -1, 1.5, 1.0, "abc", "", "string", "integer", "#/$defs/a", "^a$", [], ["a"], [1], [{}]),
    *([True], ["string"], ["string", "nope"], {}, {"a": 1}, {"a": {}}, {"a": ["b"]}, {"a": True}, {"type": "string"}),
]


def spoilt(random: Random, schema: Any, dialect: Dialect) -> Any:
    """A copy of ``schema``, in ``dialect``, with one value changed or one keyword added."""
    nodes: list[dict[str, Any]] = []

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            out = {name: copied(part) for name, part in value.items() if name != "$schema"}
            nodes.append(out)
            return out
        return [copied(part) for part in value] if isinstance(value, list) else value

    out = copied(schema)
    if not nodes:
        return out
    node = random.choice(nodes)
    name = random.choice(list(node)) if node and random.random() < 0.5 else random.choice(KEYWORDS)
    node[name] = random.choice(VALUES)
    if isinstance(out, dict):
        out["$schema"] = dialect.uri
    return out


def _is_lenient(error: ValidationError, dialect: Dialect) -> bool:
    """Whether dotllm accepts what this error of a meta-schema is about (see the module `meta_schema`)."""
    if error.context:
        return any(_is_lenient(inner, dialect) for inner in error.context)
    around, keyword = ["", "", *(token for token in error.absolute_path if isinstance(token, str))][-2:]
    value = error.instance
    return (
        (keyword in _DESCRIBING and around not in MAPS_OF_SCHEMAS)
        or error.validator == "uniqueItems"
        or (keyword.startswith("exclusive") and isinstance(value, (bool, int, float)))
        or (error.validator == "dependencies" and "exclusive" in error.message)
        or (keyword in ("items", "prefixItems") and isinstance(value, list))
        or (keyword == "$id" and error.validator == "pattern")
        or (dialect is Dialect.DRAFT4 and isinstance(value, bool) and error.validator == "type")
        or (dialect is Dialect.DRAFT4 and isinstance(value, float) and value.is_integer())
        or (dialect is Dialect.DRAFT4 and value == [] and keyword in ("required", "enum"))
        or (dialect is Dialect.DRAFT4 and value == [] and "dependencies" in error.absolute_path)
    )


def disagreement(schema: Any, dialect: Dialect = Dialect.DRAFT2020) -> str:
    """What one side refuses and the other should, too; "" if they agree."""
    dialect = detect(schema, dialect)
    judge = validator_for({"$schema": dialect.uri})
    errors = [*judge(judge.META_SCHEMA).iter_errors(schema)]
    try:
        meta_schema.check(schema, dialect)
    except InvalidSpecError as ours:
        stricter = (
            ours.keyword in ("pattern", "patternProperties")  # the meta-schema leaves these to a format
            or (ours.keyword == "additionalItems" and dialect is Dialect.DRAFT2020)
            or (ours.keyword == "$ref" and dialect is Dialect.DRAFT4)
        )
        return "" if errors or stricter else f"we refuse {ours}"
    wrong = [error for error in errors if not _is_lenient(error, dialect)]
    return f"we take {list(wrong[0].absolute_path)}: {wrong[0].message[:200]}" if wrong else ""
