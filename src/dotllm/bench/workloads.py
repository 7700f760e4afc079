"""Workloads: named sets of constraints, each with a validator of its answers.

``closed`` has only outputs whose length enums and numbers bound, ``bounded`` adds strings of bounded length, ``free``
has strings of any length (``max_tokens`` cuts them off), ``tools`` are function calls with ordinary key names, in which
much of the text is forced. A salt, which goes into property names, makes a set that no server has seen.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
FREE: Schema = {"type": "string"}


@dataclass(frozen=True)
class Constraint:
    """One constraint. ``kind`` is json_schema, regex or choice; ``value`` is a schema, pattern or list of strings."""

    name: str
    kind: str
    value: Any

    def body(self) -> dict[str, Any]:
        """The fields of a request: OpenAI's ``response_format`` for schemas, vLLM's extension for the rest."""
        if self.kind == "json_schema":
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.value}}}
        return {"structured_outputs": {self.kind: self.value}}

    def fault(self, text: str) -> str | None:
        """Why a finished answer is wrong; None if it is right. `jsonschema` and `re` judge it, not dotllm's engine."""
        if self.kind == "regex":
            return None if re.fullmatch(self.value, text) else "does not match"
        if self.kind == "choice":
            return None if text in self.value else "is not one of the choices"
        try:
            return self._schema_fault(text, _exact)
        except ArithmeticError:  # an exponent of 20 digits, or 1e300 with a multiple of 0.01
            return self._schema_fault(text, float)

    def _schema_fault(self, text: str, number: Callable[[str], Any]) -> str | None:
        import jsonschema

        try:
            data = json.loads(text, parse_float=number)
        except ValueError as error:
            return f"is not JSON: {error}"
        schema = json.loads(json.dumps(self.value), parse_float=number)
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        fault = next(validator(schema).iter_errors(data), None)
        return None if fault is None else f"breaks the schema: {fault.message[:200]}"


def _exact(text: str) -> Decimal | int:
    """A number of a type that jsonschema judges correctly: 0.14 is a multiple of 0.01, but not as a float. (To
    jsonschema, a decimal is never an integer, not even 1.0.)"""
    number = Decimal(text)
    is_integer = number == number.to_integral_value() and number.adjusted() < 400
    return int(number) if is_integer else number


def closed_object(**properties: Schema) -> Schema:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _enum(*values: Any) -> Schema:
    return {"enum": list(values)}


def _integer(highest: int) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": highest}


def _text(longest: int) -> Schema:
    return {"type": "string", "maxLength": longest}


def _list(items: Schema, length: int) -> Schema:
    return {"type": "array", "items": items, "minItems": length, "maxItems": length}


def _pattern(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def _closed(key: Callable[[str], str]) -> Iterator[Schema]:
    colour = _enum("red", "green", "blue", "orange", "violet")
    yield closed_object(**{key(name): colour for name in ("roof", "wall", "door", "floor", "fence", "gate", "path")})
    yield closed_object(**{key("series"): _list(_integer(9999), 12)})
    seat = closed_object(row=_integer(99), place=_enum("aisle", "middle", "window"), taken=BOOLEAN)
    yield closed_object(**{key("seats"): _list(seat, 6)})
    limits = closed_object(requests=_integer(9999), burst=_integer(99))
    network = closed_object(port=_integer(65535), tls=BOOLEAN, limits=limits)
    logging = closed_object(level=_enum("debug", "info", "warning", "error"), json=BOOLEAN)
    yield closed_object(**{key("network"): network, "logging": logging})
    yield closed_object(
        **{
            key("day"): _pattern("^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
            "colour": _pattern("^#[0-9a-f]{6}$"),
            "plate": _pattern("^[A-Z]{3}-[0-9]{4}-[A-Z]{2}$"),
        }
    )
    point = closed_object(x=_integer(999), y=_integer(999))
    yield {"$defs": {"point": point}, **closed_object(**{key(n): {"$ref": "#/$defs/point"} for n in ("from", "to")})}


def _bounded(key: Callable[[str], str]) -> Iterator[Schema]:
    address = closed_object(street=_text(24), city=_text(16), postcode=_integer(99999))
    yield closed_object(**{key("name"): _text(20), "age": _integer(120), "mail": _text(24), "address": address})
    yield closed_object(**{key("labels"): _list(_text(10), 8)})
    note = {"anyOf": [{"type": "null"}, _text(30)]}
    yield closed_object(**{key("title"): _text(24), "stars": _enum(1, 2, 3, 4, 5), "note": note, "seen": BOOLEAN})
    yield closed_object(**{key("code"): {**_pattern("^[a-z]+(-[a-z]+)*$"), "maxLength": 30}, "amount": _integer(10**6)})


def _free(key: Callable[[str], str]) -> Iterator[Schema]:
    yield closed_object(**{key("summary"): FREE, "score": _integer(100), "source": FREE})
    step = closed_object(thought=FREE, done=BOOLEAN)
    yield closed_object(**{key("steps"): {"type": "array", "items": step}, "answer": FREE})
    tags = {"type": "array", "items": FREE}
    yield closed_object(**{key("title"): FREE, "language": _enum("en", "de", "fr"), "body": FREE, "tags": tags})


def _tools(key: Callable[[str], str]) -> Iterator[Schema]:
    calls = {
        "get_current_weather": {
            "location_name": _text(16),
            "temperature_unit": _enum("celsius", "fahrenheit"),
            "number_of_days": _integer(14),
            "include_hourly_forecast": BOOLEAN,
        },
        "create_calendar_event": {
            "event_title": _text(20),
            "start_time": _pattern("^[0-9]{2}:[0-9]{2}$"),
            "duration_minutes": _integer(480),
            "send_invitations": BOOLEAN,
        },
        "update_customer_record": {
            "customer_identifier": _integer(10**6),
            "subscription_status": _enum("active", "suspended", "cancelled"),
            "preferred_contact_method": _enum("email", "telephone", "post"),
            "marketing_consent_given": BOOLEAN,
        },
    }
    for name, arguments in calls.items():
        yield closed_object(
            function_name=_enum(key(name)), function_arguments=closed_object(**arguments), confirmation_required=BOOLEAN
        )


SETS: dict[str, Callable[[Callable[[str], str]], Iterator[Schema]]] = {
    "closed": _closed,
    "bounded": _bounded,
    "free": _free,
    "tools": _tools,
}

SALTED = (*SETS, "regex", "choice")
"""Workloads that take a salt."""

REGEXES = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z",
    r"\+[1-9][0-9]{1,2}( [0-9]{2,4}){3}",
    r"[a-z]{3,12}(\.[a-z]{3,12}){0,2}@[a-z]{3,12}\.(org|net|example)",
)
CHOICES = (("yes", "no", "unknown"), tuple(f"category {i}: {'abc'[i % 3] * 5}" for i in range(200)))


def read_schemas(path: Path) -> list[Schema]:
    """Schemas of a JSONL file, gzipped or not: each line is a schema, or an object whose ``schema`` is one
    (MaskBench)."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return [row["schema"] if isinstance(row, dict) and "schema" in row and "name" in row else row for row in rows]


def load(name: str, salt: str = "", count: int = 100, seed: int = 0) -> list[Constraint]:
    """A workload by name: one of `SETS`, ``regex``, ``choice``, or a path of a JSONL file (``count`` of its schemas).

    ``salt`` makes another set of the same shape (it does not change files).

    Raises:
        ValueError: ``name`` is neither a workload nor a file.
    """
    if name in SETS:
        schemas = list(SETS[name](lambda key: f"{key}_{salt}" if salt else key))
        return [Constraint(f"{name} {i}", "json_schema", schema) for i, schema in enumerate(schemas)]
    if name == "regex":
        return [Constraint(f"regex {i}", "regex", pattern + salt) for i, pattern in enumerate(REGEXES)]
    if name == "choice":
        return [Constraint(f"choice {i}", "choice", [c + salt for c in value]) for i, value in enumerate(CHOICES)]
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"workload {name!r}: neither one of {', '.join(SALTED)} nor a file")
    schemas = read_schemas(path)
    chosen = random.Random(seed).sample(range(len(schemas)), min(count, len(schemas)))
    return [Constraint(f"{path.name} {i}", "json_schema", schemas[i]) for i in chosen]
