"""Writes benchmarks/data/specs.json, the specs of `benchmarks.engine`: ``python -m benchmarks.make_specs``.

A program makes the specs because half of them are long lists; the file is committed, so that a run needs only the
data. ``values`` (JSON) or ``texts`` are samples that satisfy the spec: the first is walked cold. ``long`` is
``[prefix, units, separator, suffix]``, from which a text of any length is built. ``tags``: ``cfg`` (the targets for
context-free grammars apply), ``hard`` (known blow-ups: reported, not part of the typical percentiles), ``slow`` (a
peer compiles it for seconds: left out by ``--quick``).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "data" / "specs.json"
RANDOM = random.Random(20261121)

EMAIL = r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}"
DATETIME = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
PHONE = r"(\+[1-9][0-9]{0,2}[ -]?)?\(?[0-9]{3}\)?[ -]?[0-9]{3}[ -]?[0-9]{4}"

ARITHMETIC_LARK = """start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: /[0-9]{1,9}/ | "(" sum ")" | "-" atom
"""
ARITHMETIC_EBNF = """root ::= product (("+" | "-") product)*
product ::= atom (("*" | "/") atom)*
atom ::= [0-9]{1,9} | "(" root ")" | "-" atom
"""
SQL_LARK = """start: "SELECT " columns " FROM " NAME (" WHERE " condition)? (" ORDER BY " NAME (" ASC" | " DESC")?)? ";"
columns: "*" | column (", " column)*
column: NAME | FUNCTION "(" NAME ")"
condition: comparison ((" AND " | " OR ") comparison)*
comparison: operand (" = " | " < " | " > " | " <> ") operand | "(" condition ")"
operand: NAME | NUMBER | STRING
FUNCTION: "COUNT" | "SUM" | "AVG" | "MIN" | "MAX"
NAME: /[a-z][a-z_0-9]*/
NUMBER: /[0-9]+/
STRING: /'[^'\\n]*'/
"""
SQL_EBNF = """root ::= "SELECT " columns " FROM " name (" WHERE " condition)? (" ORDER BY " name direction?)? ";"
direction ::= " ASC" | " DESC"
columns ::= "*" | column (", " column)*
column ::= name | function "(" name ")"
condition ::= comparison ((" AND " | " OR ") comparison)*
comparison ::= operand (" = " | " < " | " > " | " <> ") operand | "(" condition ")"
operand ::= name | number | string
function ::= "COUNT" | "SUM" | "AVG" | "MIN" | "MAX"
name ::= [a-z] [a-z_0-9]*
number ::= [0-9]+
string ::= "'" [^'\\n]* "'"
"""


def closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """A closed object; all properties are required unless ``required`` names some."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def words(count: int, low: int, high: int) -> list[str]:
    """Distinct pronounceable words."""
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = RANDOM.randint(low, high)
        found["".join(RANDOM.choice("bcdfgklmnprstvz") + RANDOM.choice("aeiou") for _ in range(syllables))] = None
    return list(found)


def prose(chars: int) -> str:
    """Text of ``chars`` ordinary and unusual characters."""
    parts = []
    while sum(map(len, parts)) < chars:
        parts += [*words(6, 1, 4), RANDOM.choice([".", ",", "é", "日本", "“so”", "\n", '"', "🙂"])]
    return " ".join(parts)[:chars]


def person() -> tuple[dict[str, Any], list[Any]]:
    """A flat object of ten fields."""
    text: dict[str, Any] = {"type": "string"}
    schema = closed(
        {
            "id": {"type": "integer", "minimum": 1},
            "first_name": text,
            "last_name": text,
            "email": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "active": {"type": "boolean"},
            "score": {"type": "number"},
            "role": {"enum": ["admin", "editor", "viewer", "guest"]},
            "tags": {"type": "array", "items": text},
            "joined": {"type": "string", "format": "date"},
        }
    )
    names = words(4, 2, 3)
    return schema, [
        {
            "id": 17 + i,
            "first_name": names[i].title(),
            "last_name": names[i + 2].title() + "é",
            "email": f"{names[i]}@example.org",
            "age": 41,
            "active": True,
            "score": 0.75 - i,
            "role": "editor",
            "tags": ["new", "vip", prose(40)],
            "joined": "2024-02-29",
        }
        for i in range(2)
    ]


def tree(depth: int) -> dict[str, Any]:
    """An instance of the recursive tree."""
    children = [tree(depth - 1) for _ in range(2)] if depth else []
    return {"name": words(1, 2, 4)[0], "value": RANDOM.randint(-999, 999), "children": children}


def json_specs() -> list[dict[str, Any]]:
    """The JSON Schema specs, with instances."""
    flat, people = person()
    node = closed(
        {
            "name": {"type": "string"},
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        }
    )
    city, street = words(1000, 2, 5), words(1000, 2, 5)
    code = {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}-[a-z]{2,8}$"}
    bounded = {"type": "string", "maxLength": 5000}
    long_text = closed(
        {"title": bounded, "body": bounded, "slug": {**bounded, "pattern": "^[a-z0-9-]+$"}, "code": code}
    )
    many = {name: {"type": "integer"} for name in words(100, 2, 4)}
    some = dict.fromkeys(RANDOM.sample(list(many), 30))
    kinds = words(50, 2, 3)
    union_first = {"anyOf": [closed({"kind": {"const": k}, f"{k}_size": {"type": "integer"}}) for k in kinds]}
    union_last = {"anyOf": [closed({"size": {"type": "integer"}, "kind": {"const": k}}) for k in kinds]}
    tool = {
        "anyOf": [
            closed({"name": {"const": name}, "arguments": closed({a: {"type": t} for a, t in arguments.items()})})
            for name, arguments in {
                "get_weather": {"city": "string", "days": "integer"},
                "send_mail": {"to": "string", "subject": "string", "urgent": "boolean"},
                "search": {"query": "string", "limit": "integer", "exact": "boolean"},
            }.items()
        ]
    }
    optional = [name for name in many if name in some]
    units = [json.dumps(tree(1)) for _ in range(40)]
    long_tree = ['{"name": "root", "value": 1, "children": [', units, ", ", "]}"]
    cases: list[tuple[str, Any, list[Any], list[str]]] = [
        ("flat 10 fields", flat, people, []),
        ("recursive tree", node, [tree(3), tree(2)], []),
        ("enum 2x1000", closed({"city": {"enum": city}, "street": {"enum": street}}),
         [{"city": city[i], "street": street[-i]} for i in (7, 500)], []),
        ("maxLength 5000 + pattern", long_text,
         [{"title": prose(120), "body": prose(1500), "slug": "-".join(words(9, 2, 4)), "code": "ABC-1234-xyz"}],
         ["slow"]),
        ("100 optional", closed(many, []), [{k: RANDOM.randint(0, 10**6) for k in optional}], []),
        ("100 optional + additional",
         {"type": "object", "properties": many, "additionalProperties": {"type": "boolean"}},
         [{**{k: RANDOM.randint(0, 10**6) for k in optional}, **dict.fromkeys(words(5, 5, 6), True)}], ["slow"]),
        ("anyOf 50, kind first", union_first, [{"kind": k, f"{k}_size": 12} for k in kinds[::20]], []),
        ("anyOf 50, kind last", union_last, [{"size": 12, "kind": k} for k in kinds[::20]], []),
        ("tool call", tool,
         [{"name": "send_mail", "arguments": {"to": "a@b.org", "subject": prose(60), "urgent": True}},
          {"name": "search", "arguments": {"query": prose(30), "limit": 3, "exact": False}}], []),
        ("maxItems 1000 x maxLength 50",
         {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 50}},
         [[prose(RANDOM.randint(1, 50)) for _ in range(60)]], ["slow"]),
    ]  # fmt: skip
    rows = [
        {"name": name, "kind": "json_schema", "spec": schema, "values": values, "tags": tags}
        for name, schema, values, tags in cases
    ]
    rows[1]["long"] = long_tree
    return rows


def other_specs() -> list[dict[str, Any]]:
    """Any JSON, regexes, choices and grammars."""
    anything = {"menu": {"id": "file", "items": [None, True, -1.5e3, [], {}, {"deep": [[["x"]]]}]}, "text": prose(200)}
    expression = "12+(3*-45-(6/7))*((8))-9*(10+11*(12-13))"
    city = words(1000, 2, 4)
    hundred = "".join(RANDOM.choice("abc") for _ in range(60)) + "a" + "".join(RANDOM.choice("bc") for _ in range(20))
    cases: list[tuple[str, str, Any, list[str], list[str]]] = [
        ("e-mail", "regex", EMAIL, ["ada.lovelace+math@analytical-engine.example.org", "x@y.io"], []),
        ("ISO datetime", "regex", DATETIME, ["2026-11-21T15:04:05.123456Z", "1999-12-31T23:59:59+02:00"], []),
        ("phone", "regex", PHONE, ["+49 (030) 123-4567", "555-123-4567"], []),
        ("words", "regex", r"([a-z]{1,200},)*", [",".join(words(150, 1, 5)) + ","], []),
        ("(a|b|c)*a(a|b|c){20}", "regex", "(a|b|c)*a(a|b|c){20}", [hundred], ["hard"]),
        (".*a.{20}", "regex", ".*a.{20}", [prose(80).replace("\n", " ") + " a" + "0123456789" * 2], ["hard"]),
        ("choice of 1000", "choice", city, [city[3], city[777]], []),
        ("arithmetic", "grammar", {"lark": ARITHMETIC_LARK, "ebnf": ARITHMETIC_EBNF}, [expression, "-1"], ["cfg"]),
        ("SQL subset", "grammar", {"lark": SQL_LARK, "ebnf": SQL_EBNF},
         ["SELECT name, COUNT(id), total FROM orders WHERE total > 100 AND (city = 'Oslo' OR city = 'Köln') "
          "ORDER BY name DESC;", "SELECT * FROM t;"], ["cfg"]),
    ]  # fmt: skip
    rows = [dict(zip(("name", "kind", "spec", "texts", "tags"), case, strict=True)) for case in cases]
    rows.append({"name": "any JSON object", "kind": "json_object", "spec": None, "values": [anything], "tags": ["cfg"]})
    long: dict[str, list[Any]] = {
        "any JSON object": [
            '{"data": [',
            [json.dumps({**anything, "text": prose(30)}, ensure_ascii=False) for _ in range(40)],
            ", ",
            "]}",
        ],
        "arithmetic": ["1+", [f"(2-{n}*(3+-{n * n}/(7)))" for n in range(40)], "+", "+0"],
        "words": ["", words(400, 1, 5), ",", ","],
    }
    for row in rows:
        if row["name"] in long:
            row["long"] = long[row["name"]]
    return rows


def main() -> None:
    """Write the file."""
    rows = [json.dumps(row, ensure_ascii=False) for row in json_specs() + other_specs()]
    PATH.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"{len(rows)} specs, {PATH.stat().st_size:,} bytes → {PATH}")


if __name__ == "__main__":
    main()
