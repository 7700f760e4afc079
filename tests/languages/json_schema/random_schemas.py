"""Random schemas that use every keyword, and random documents that nearly fit them; the seed determines them."""

from __future__ import annotations

from random import Random
from typing import Any

KEYS = ["a", "b", "c", "x1"]
STRINGS = ["", "a", "ab", "b", "ba", "aaa", "é", "x1"]
NUMBERS = [0, 1, 2, 3, -1, 1.5, 0.25, 10]
SCALARS: list[Any] = [None, True, False, *NUMBERS, *STRINGS]
PATTERNS = ["^a", "b$", "^[ab]*$", "a.", "^$", "^x", "1"]


def random_schema(random: Random, depth: int = 3, *, recursive: bool = True) -> Any:
    """A schema of draft 2020-12; ``$ref`` leads to the root or to one of two definitions."""
    schema = _schema(random, depth, ["#", "#/$defs/p", "#/$defs/q"] if recursive else [])
    if recursive and isinstance(schema, dict) and schema:
        schema["$defs"] = {"p": _schema(random, depth - 1, ["#"]), "q": _schema(random, 1, [])}
    return schema


def random_document(random: Random, depth: int = 3) -> Any:
    """A JSON value over the same keys and scalars."""
    pick = random.random()
    if depth <= 0 or pick < 0.35:
        return random.choice(SCALARS)
    if pick < 0.6:
        return [random_document(random, depth - 1) for _ in range(random.randint(0, 4))]
    keys = random.sample([*KEYS, "z"], random.randint(0, 4))
    return {key: random_document(random, depth - 1) for key in keys}


def _schema(random: Random, depth: int, references: list[str]) -> Any:
    pick = random.random()
    if depth <= 0 or pick < 0.12:
        return random.choice([True, True, False, {}, _scalar(random), _scalar(random), _enum(random)])
    if pick < 0.16 and references:
        # a reference to an enclosing schema is meaningful only below a property or an item
        return {"properties": {random.choice(KEYS): {"$ref": random.choice(references)}}}
    single = [[_object], [_object], [_array], [_array], [_scalar], [_enum], [_applicator]]
    pairs = [
        [_object, _applicator],
        [_array, _applicator],
        [_object, _array],
        [_scalar, _object],
        [_applicator, _scalar],
    ]
    makers = random.choice([*single, *pairs])
    out: dict[str, Any] = {}
    for maker in makers:
        made = maker(random, depth, references) if maker in (_object, _array, _applicator) else maker(random)
        out.update(made)
    return out


def _scalar(random: Random) -> dict[str, Any]:
    kind = random.choice(["string", "number", "integer", "boolean", "null", "any"])
    out: dict[str, Any] = (
        {} if kind == "any" else {"type": random.choice([kind, kind, [kind, "array"], [kind, "null"]])}
    )
    if kind in ("string", "any"):
        for keyword, values in (("minLength", [0, 1, 2]), ("maxLength", [0, 1, 2, 3]), ("pattern", PATTERNS)):
            if random.random() < 0.3:
                out[keyword] = random.choice(values)
    if kind in ("number", "integer", "any"):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if random.random() < 0.25:
                out[keyword] = random.choice(NUMBERS)
        if random.random() < 0.2:
            out["multipleOf"] = random.choice([1, 2, 0.5, 3])
    return out


def _enum(random: Random) -> dict[str, Any]:
    values = random.sample(SCALARS, random.randint(1, 4))
    if random.random() < 0.3:
        values.append(random_document(random, 2))
    return {"const": values[-1]} if random.random() < 0.4 else {"enum": values}


def _object(random: Random, depth: int, references: list[str]) -> dict[str, Any]:
    def child() -> Any:
        if references and random.random() < 0.15:
            return {"$ref": random.choice(references)}
        return _schema(random, depth - 1, references)

    out: dict[str, Any] = {}
    if random.random() < 0.5:
        out["type"] = "object"
    if random.random() < 0.8:
        out["properties"] = {key: child() for key in random.sample(KEYS, random.randint(1, 3))}
    if random.random() < 0.4:
        out["required"] = random.sample(KEYS, random.randint(1, 2))
    if random.random() < 0.25:
        out["patternProperties"] = {p: child() for p in random.sample(PATTERNS, random.randint(1, 2))}
    if random.random() < 0.35:
        out["additionalProperties"] = child()
    if random.random() < 0.12:
        out["propertyNames"] = {"pattern": random.choice(PATTERNS)} if random.random() < 0.5 else {"enum": KEYS[:3]}
    if random.random() < 0.15:
        out["minProperties"] = random.randint(1, 3)
    if random.random() < 0.15:
        out["maxProperties"] = random.randint(0, 3)
    if random.random() < 0.15:
        out["dependentRequired"] = {random.choice(KEYS): random.sample(KEYS, random.randint(1, 2))}
    if random.random() < 0.12:
        out["dependentSchemas"] = {random.choice(KEYS): child()}
    if random.random() < 0.12:
        out["unevaluatedProperties"] = child()
    return out


def _array(random: Random, depth: int, references: list[str]) -> dict[str, Any]:
    def child() -> Any:
        return _schema(random, depth - 1, references)

    out: dict[str, Any] = {}
    if random.random() < 0.5:
        out["type"] = "array"
    if random.random() < 0.6:
        out["items"] = child()
    if random.random() < 0.3:
        out["prefixItems"] = [child() for _ in range(random.randint(1, 2))]
    if random.random() < 0.25:
        out["contains"] = child()
        if random.random() < 0.4:
            out["minContains"] = random.randint(0, 2)
        if random.random() < 0.4:
            out["maxContains"] = random.randint(0, 2)
    if random.random() < 0.25:
        out["minItems"] = random.randint(0, 3)
    if random.random() < 0.25:
        out["maxItems"] = random.randint(0, 3)
    if random.random() < 0.1:
        out["uniqueItems"] = True
    if random.random() < 0.12:
        out["unevaluatedItems"] = child()
    return out


def _applicator(random: Random, depth: int, references: list[str]) -> dict[str, Any]:
    def child() -> Any:
        return _schema(random, depth - 1, references)

    pick = random.choice(["allOf", "anyOf", "oneOf", "not", "if", "anyOf", "oneOf"])
    if pick == "not":
        return {"not": child()}
    if pick == "if":
        out = {"if": child()}
        for keyword in ("then", "else"):
            if random.random() < 0.7:
                out[keyword] = child()
        return out
    return {pick: [child() for _ in range(random.randint(1, 3))]}
