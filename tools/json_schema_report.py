"""Writes ``docs/json-schema.md``: keyword by keyword what is enforced, from the verdicts on the official test suite.

    python -m tools.json_schema_report [--check]

What stands in the tables is counted, not claimed; the sentences beside it are data below. A test compares the document
with what this would write, so it cannot fall behind the engine.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from dotllm.languages.json_schema import SchemaBudget
from dotllm.languages.json_schema.emission.json_text import MAX_BLANKS, MAX_TABS, MAX_WHITESPACE
from dotllm.languages.json_schema.strings.formats import FORMATS
from tests.languages.json_schema.official_suite import DIALECTS, SUITE, Verdicts, files, judge

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "json-schema.md"

# Files of the suite by the keyword they are about, where that is not the file's name; and what else there is to say.
KEYWORD = {
    "anchor": "$anchor",
    "boolean_schema": "true, false",
    "content": "contentEncoding, contentMediaType",
    "defs": "$defs",
    "definitions": "definitions",
    "dynamicRef": "$dynamicRef",
    "if-then-else": "if, then, else",
    "infinite-loop-detection": "(recursion)",
    "ref": "$ref",
    "refRemote": "$ref to other documents",
    "vocabulary": "$vocabulary",
    "optional/anchor": "$anchor",
    "optional/bignum": "(large numbers)",
    "optional/content": "contentEncoding, contentMediaType",
    "optional/cross-draft": "$schema in sub-schemas",
    "optional/dependencies-compatibility": "dependencies",
    "optional/dynamicRef": "$dynamicRef",
    "optional/ecmascript-regex": "pattern",
    "optional/float-overflow": "multipleOf",
    "optional/format-assertion": "$vocabulary",
    "optional/id": "$id",
    "optional/no-schema": "$schema",
    "optional/non-bmp-regex": "pattern",
    "optional/refOfUnknownKeyword": "$ref",
    "optional/unknownKeyword": "(unknown keywords)",
}
NOTES = {
    "$anchor": "and `$id`, relative and bundled references; nothing is fetched",
    "$dynamicRef": "resolved when the schema is compiled",
    "(large numbers)": "bounds of any size, exactly; decimals are decimals, not binary floats",
    "(recursion)": "of any kind; a schema that is defined by itself in place means nothing and is refused",
    "additionalProperties": "names and patterns beside it are taken out of the other keys exactly",
    "contains": "with `minContains` and `maxContains` (2019-09 on), beside any `items`",
    "contentEncoding, contentMediaType": "annotations, as the standard says",
    "default": "an annotation",
    "dependencies": "both forms, in every dialect",
    "enum": "of any values; strings in canonical spelling",
    "format": "see below; a name that is no standard one is an annotation",
    "multipleOf": "integers and decimals, with bounds; refused where the automaton has too many states",
    "not": "of everything",
    "oneOf": "exactly one: overlaps are excluded",
    "pattern": "searched for anywhere, ECMA-262; with lengths and formats by intersection ([regex.md](regex.md))",
    "properties": "a declared key never appears twice",
    "unevaluatedItems": "decided when the schema is compiled, case by case",
    "unevaluatedProperties": "decided when the schema is compiled, case by case",
    "uniqueItems": "of any items, however written; not beside `contains`, and its `not` over few values only",
}

HEAD = """# JSON Schema: what is enforced

<!-- Written by `python -m tools.json_schema_report` from the verdicts on the official test suite. Do not edit. -->

A schema is enforced exactly, or the request is refused with the keyword and its JSON Pointer: the texts that a mask
allows are those of the documents that are valid, written as said below. Drafts 4, 6, 7, 2019-09 and 2020-12; a schema
without `$schema` is read as 2020-12. Keywords that assert nothing and unknown ones are ignored, as the standard says.

## Keywords

From the [JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite), its required and optional
tests; every document is tried as compact and as spaced text. *a/b*: of b tests a have the right verdict; the others are
refused by name or differ for the reason given. No verdict is wrong.

| keyword | 2020-12 | 7 | |
|---|---|---|---|
"""
FORMATS_HEAD = """
## Formats

Each is the language of its standard, as far as that can be decided by an automaton; beside `pattern` and lengths it is
an intersection.

| format | standard | 2020-12 | 7 | |
|---|---|---|---|---|
"""
TEXT = f"""
## How a document is written

* **Keys** come in declared order: first those of `properties`, in the order of the schema's text (of `allOf`, `$ref`
  and the like: in the order in which a reader meets them), then all others. `--dotllm-property-order any`, or a
  request's `"vllm_xargs": {{"dotllm_property_order": "any"}}`, allows any order.
* **Additional keys** (and those that match `patternProperties`) are spelled canonically and are never one of the
  declared keys, so no spelling hides one. An additional key may appear twice, as in any JSON text, where that changes
  nothing; where such keys are counted (`minProperties` above the required keys and one more, `not` of
  `maxProperties`) or one of them must have some value (`not` of `additionalProperties`), guides remember them, and none
  does. A key that the schema names (also in `required` or `dependentRequired`) never appears twice.
* **White space** is what `json.dumps(…, indent=…)` and formatters write. Between two tokens stands nothing, one space,
  or a line break (`\\n` or `\\r\\n`) and at most {MAX_BLANKS} blanks or {MAX_TABS} tabs; nothing stands around the
  document. So white space cannot run on. `--dotllm-whitespace any` (`whitespace="any"` in Python) allows any white
  space of JSON, at most {MAX_WHITESPACE} characters between two tokens. `disable_any_whitespace` leaves none;
  `whitespace_pattern` replaces it, by what it matches of JSON's white space. A pattern that matches anything but white
  space is refused.
* **`json.dumps(…, ensure_ascii=False)`** writes documents as they are allowed, but for these, which it or a formatter
  may write and which are not allowed:
  * nesting deeper than 16 levels at `indent=2`, 8 levels at `indent=4` or a tab;
  * anything around the document: the line break at the end of a file, a byte order mark;
  * two spaces or a tab on one line (columns that are aligned), an empty line, a blank at the end of a line;
  * keys in another order than above (`sort_keys`), unless `property_order="any"`;
  * escapes (`ensure_ascii`, `\\/`) in keys, and in strings with a condition but their length; unpaired surrogates;
  * `1.0` and `1e3` under `type: integer`, `1e-08` under `multipleOf`, `-0.0` where nothing negative is allowed, `NaN`.
* **Strings** without a condition but their length may be spelled in any way of RFC 8259; all others, and keys, raw
  where JSON allows that. Lengths count code points. Unpaired surrogates are not Unicode text and not allowed.
* **Integers** (`type: integer`) are written without fraction and exponent. Other numbers may be written in any way
  where the schema does not care about their scale; else in decimal or scientific notation, multiples in decimal only.
  `-0` is written only where negative numbers are allowed, too. A schema's numbers have at most 2,000 digits.
* `disable_additional_properties`: an object has no keys but those that `properties` and `patternProperties` name in one
  of the schemas that hold for it: together in `allOf` and beside `$ref`, `if` or `dependentSchemas` where they apply;
  of `anyOf` and `oneOf` in the alternative that is written. It stays open where none of them names any, or one says
  something about other keys itself (`additionalProperties`, `unevaluatedProperties`, or the objects of an `enum`). In
  `not` and `if`, and in the other alternatives of `oneOf`, schemas mean what they state: with the option less is
  allowed, never more.
* A schema that **nothing satisfies** is refused, with the innermost place that every document needs and the keywords
  there that exclude each other.

## Limits

Everything that costs has a budget; reaching one is a refusal that names it, the same on every machine (`SchemaBudget`
in `src/dotllm/languages/json_schema/options.py`):

| budget | default | what it counts |
|---|---|---|
"""
BUDGETS = {
    "steps": "work of combining sub-schemas, about a microsecond each",
    "nodes": "combinations of sub-schemas (`allOf`, `not`, …) that are looked at",
    "alternatives": "alternatives of one type in one schema: the product of its `anyOf`, `oneOf` and `if`",
    "edges": "size of the automaton over the members of one object or the items of one array",
    "total_edges": "the same, of all of them",
}


def _cell(found: list[Verdicts]) -> str:
    if not found:
        return "—"
    exact = sum(v.exact for v in found)
    total = exact + sum(v.different.total() + v.refused.total() + len(v.wrong) for v in found)
    return f"full ({total})" if exact == total else f"{exact}/{total}"


def _reasons(found: list[Verdicts]) -> list[str]:
    """Why tests are refused or differ, without what is particular to one schema."""
    out: Counter[str] = Counter()
    for verdicts in found:
        for reason, count in verdicts.refused.items():
            keyword, message = reason.split(": ", 1)
            out[f"refused: `{keyword}` {_general(message)}"] += count
        for reason, count in verdicts.different.items():
            out[f"differs: {reason}"] += count
        for reason in verdicts.wrong:
            out[f"**wrong**: {reason}"] += 1
    return sorted(out)


def _general(message: str) -> str:
    for words in ("leads to another document", "is not a dialect", "finitely many", "cannot be enforced", "states"):
        if words in message:
            return {"finitely many": "over values that are not finitely many", "states": "needs too many states"}.get(
                words, words
            )
    return message


def _line(keyword: str, by_draft: dict[str, list[Verdicts]], note: str) -> str:
    cells = [_cell(by_draft[draft]) for draft in DIALECTS]
    reasons = _reasons([v for found in by_draft.values() for v in found])
    names = ", ".join(name if name.startswith("(") else f"`{name}`" for name in keyword.split(", "))
    return f"| {names} | {' | '.join(cells)} | {'; '.join([*([note] if note else []), *reasons])} |\n"


def document() -> str:
    """The whole of ``docs/json-schema.md``."""
    keywords: dict[str, dict[str, list[Verdicts]]] = {}
    formats: dict[str, dict[str, list[Verdicts]]] = {}
    for draft, file in files():
        if file.startswith("optional/format/"):
            rows, name = formats, file.rsplit("/", 1)[1]
        else:
            rows, name = keywords, KEYWORD.get(file, file.rsplit("/", 1)[-1])
        rows.setdefault(name, {d: [] for d in DIALECTS})[draft].append(judge(draft, file))
    out = HEAD
    for name in sorted(keywords, key=lambda name: (name.startswith("("), name.lstrip("$").lower())):
        out += _line(name, keywords[name], NOTES.get(name, ""))
    out += FORMATS_HEAD
    for name in sorted({*formats, *FORMATS}):
        reference = FORMATS[name].reference if name in FORMATS else "—"
        line = _line(name, formats.get(name, {d: [] for d in DIALECTS}), "")
        _, first, rest = line.split("|", 2)
        out += f"|{first}| {reference} |{rest}"
    out += TEXT
    for field, default in SchemaBudget()._asdict().items():
        out += f"| `{field}` | {default:,} | {BUDGETS[field]} |\n"
    return out


def main() -> int:
    """Write the document, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    options = parser.parse_args()
    if not SUITE.exists():
        parser.error(f"the suite is not at {SUITE}")
    found = document()
    if options.check:
        return int(found != DOCUMENT.read_text())
    DOCUMENT.write_text(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
