"""Writes ``docs/json-schema.md``: what is enforced of each keyword, from the verdicts on the official test suite.

    python -m tools.json_schema_report [--check]

The program counts the verdicts for the tables; the sentences next to them are data below. A test compares the document
with what this would write, so it cannot fall behind the engine.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from dotllm.languages.json_schema import SchemaBudget
from dotllm.languages.json_schema.emission.json_text import MAX_BLANKS, MAX_TABS, MAX_WHITESPACE
from dotllm.languages.json_schema.numbers.bounded_numbers import MOST_CHARACTERS, SURE_DIGITS
from dotllm.languages.json_schema.strings.formats import FORMATS
from tests.languages.json_schema.official_suite import DIALECTS, SUITE, Verdicts, files, judge

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "json-schema.md"

# The keyword that a file of the suite tests, if it is not the file's name; and notes on keywords.
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
    "additionalProperties": "names and patterns given with it are taken out of the other keys exactly",
    "contains": "with `minContains` and `maxContains` (2019-09 on), with any `items`",
    "contentEncoding, contentMediaType": "annotations, as the standard says",
    "default": "an annotation",
    "dependencies": "both forms, in every dialect",
    "enum": "of any values; strings in canonical spelling",
    "format": "see below; a name that is not a standard one is an annotation",
    "multipleOf": "integers and decimals, with bounds; refused where the automaton has too many states",
    "not": "of everything",
    "oneOf": "exactly one: overlaps are excluded",
    "pattern": "searched for anywhere, ECMA-262; with lengths and formats by intersection ([regex.md](regex.md))",
    "properties": "a declared key never appears twice",
    "unevaluatedItems": "decided when the schema is compiled, case by case",
    "unevaluatedProperties": "decided when the schema is compiled, case by case",
    "uniqueItems": "of any items, however written, nested 500 deep at most; not with `contains`, and its `not` only "
    "over few values",
}

HEAD = """# JSON Schema: what is enforced

<!-- Written by `python -m tools.json_schema_report` from the verdicts on the official test suite. Do not edit. -->

A schema is enforced exactly, or the request is refused with the keyword and its JSON Pointer: the texts that a mask
allows are those of the documents that are valid, written as said below. Drafts 4, 6, 7, 2019-09 and 2020-12; a schema
without `$schema` is read as 2020-12. Keywords that assert nothing and unknown ones are ignored, as the standard says.

## Keywords

From the [JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite), its required and optional
tests; every document is tried as compact and as spaced text, with keys in any order and open objects. *a/b*: of b
tests a have the right verdict; the others are refused by name or differ for the reason given. No verdict is wrong.

| keyword | 2020-12 | 7 | |
|---|---|---|---|
"""
FORMATS_HEAD = """
## Formats

Each is the language of its standard, as far as that can be decided by an automaton; with `pattern` and lengths it is
an intersection. Times, dates and durations are those that readers take as well (Python's `datetime`, Pydantic,
JavaScript): no second 60, `T` and `Z` in upper case (as RFC 3339 §5.6 asks of those who write), no year 0000, at most
fifteen digits of a fraction, durations of at most six or eight digits in a component. Domains of e-mail addresses are
fully qualified (RFC 5321 §2.3.5), with a last label of letters: Pydantic, zod and valibot refuse others.
`dotllm check` names the formats that are not enforced (`jwt`, `password`, `int32`, unknown ones), and
`contentEncoding`, `contentMediaType` and `contentSchema` where a reader expects more than an annotation.

| format | standard | 2020-12 | 7 | |
|---|---|---|---|---|
"""
TEXT = f"""
## How a document is written

* **Keys** come in declared order: first those of `properties`, in the order of the schema's text (of `allOf`, `$ref`
  and so on: in the order in which a reader meets them), then all others. `--dotllm-property-order any`, or a
  request's `"vllm_xargs": {{"dotllm_property_order": "any"}}`, allows any order.
* **Objects that list `properties`** and do not mention other keys have none. That is a choice among what the standard
  allows: every answer is still valid. An object is closed as a whole: its keys are those that `properties` and
  `patternProperties` name in one of the schemas that hold for it, together in `allOf` and with `$ref`, `if` or
  `dependentSchemas` where they apply; of `anyOf` and `oneOf` in the alternative that is written. In `not` and `if`, and
  in the other alternatives of `oneOf`, schemas mean what they state.
  * `additionalProperties` and `unevaluatedProperties`, where a schema has them, hold, and so do the objects of an
    `enum`. Objects without `properties` are maps and stay open, also with `patternProperties` or `propertyNames`.
  * Closing takes nothing away that is needed. A key that must be there (`required`, `dependentRequired`) may be there
    although no schema lists it. Where there would be no object (`minProperties` above the number of keys that are
    listed), the object stays open; where nothing at all would satisfy the schema, or a budget would be exceeded, all
    of the schema's objects do.
  * `--dotllm-additional-properties open`, a request's `"vllm_xargs": {{"dotllm_additional_properties": "open"}}` and
    `additional_properties="open"` in Python open them, `closed` closes them. `%json` in a Lark grammar is open.
  * `disable_additional_properties` of vLLM (in Python `additional_properties=False`) is the stronger wish: it closes
    objects that have only `patternProperties`, too, and makes no exceptions, so that a schema whose `required` names
    a key that is not listed is refused. With it `"open"` in a request is refused.
* **Further keys** (those of open objects that no schema names, and those that match `patternProperties`) are spelled
  canonically and are never one of the declared keys, so no spelling hides one. In declared order they do not begin
  with a declared key either: after `{{"title": "x", "summary` a model means the key `summary`; as that has been passed,
  it would have to go on with `summary_…`, which nobody has asked for. (If nearly all keys of a pattern begin with a
  declared one, as `^x-` with the property `x`, they are written.) A further key may appear twice, as in any JSON
  text, where that changes nothing; where such keys are counted (`minProperties` above the required keys and one more,
  `not` of `maxProperties`) or one of them must have some value (`not` of `additionalProperties`), guides remember them,
  and none does. A key that the schema names (also in `required` or `dependentRequired`) never appears twice.
* **Values that a text has**: `"vllm_xargs": {{"dotllm_source": TEXT}}` in a request and `source=TEXT` in Python keep
  only those strings and numbers that the text has, if it has any
  ([answer quality](answer-quality.md#values-that-the-text-has)).
  It only narrows, and never to nothing: every answer is still valid. Keys, booleans and `const` stay as they are.
* **White space** is what `json.dumps(…, indent=…)` and formatters write. Between two tokens there is nothing, one
  space, or a line break (`\\n` or `\\r\\n`) and at most {MAX_BLANKS} blanks or {MAX_TABS} tabs; nothing surrounds the
  document. So white space cannot run on. `--dotllm-whitespace any` (`whitespace="any"` in Python) allows any white
  space of JSON, at most {MAX_WHITESPACE} characters between two tokens. `disable_any_whitespace` leaves none;
  `whitespace_pattern` replaces it, by what it matches of JSON's white space. A pattern that matches anything but white
  space is refused.
* **`json.dumps(…, ensure_ascii=False)`** writes documents as they are allowed, except for these, which it or a
  formatter may write and which are not allowed:
  * nesting deeper than 16 levels at `indent=2`, 8 levels at `indent=4` or a tab;
  * anything around the document: the line break at the end of a file, a byte order mark;
  * two spaces or a tab on one line (columns that are aligned), an empty line, a blank at the end of a line;
  * keys in another order than above (`sort_keys`), unless `property_order="any"`;
  * keys that an object does not list, unless its schema says `additionalProperties` or they are open;
  * escapes (`ensure_ascii`, `\\/`) in keys, and in strings with conditions other than lengths; unpaired surrogates;
  * `1.0` and `1e3` under `type: integer`, `1e-08` under `multipleOf`, `-0.0` where nothing negative is allowed, `NaN`.
* **Strings** without a condition except their length may be spelled in any way of RFC 8259; all others, and keys, raw
  where JSON allows that. Lengths count code points. Unpaired surrogates are not Unicode text and not allowed.
* **Integers** (`type: integer`) are written without fraction and exponent. Other numbers may be written in any way
  where the schema does not care about their scale; otherwise in decimal or scientific notation, multiples only
  in decimal. `-0` is written only where negative numbers are allowed, too. A schema's numbers have at most 2,000
  digits. A server reads the numbers of a request as doubles: of more than 17 digits the nearest double counts. Where a
  schema comes as text (`structured_outputs.json` as a string, `dotllm check`, Python), all digits count.
* **Numbers are bounded** to what all readers take: {MOST_CHARACTERS} characters without the sign, or as many as the
  schema's own numbers need; finite as a double (integers, too, unless the schema has only larger
  ones); and on the right side of an open end (`exclusiveMinimum`, `not`) as a double, too: `7e-76577`
  is not above 0. Exponents reach 307 after one digit, else 199. Multiples that are excluded (`not` of
  `multipleOf`) leave {SURE_DIGITS} characters. `--dotllm-number-digits any`, a request's `"vllm_xargs":
  {{"dotllm_number_digits": "any"}}` or `number_digits="any"` in Python lifts it; arguments of tool calls
  stay finite.
* **`$schema`** of OpenAPI 3.1 and 3.2 (`https://spec.openapis.org/oas/3.1/dialect/base`) is 2020-12 with annotations.
* **`nullable: true`** (OpenAPI 3.0) next to `type` adds null to it, and nothing to `enum`, as OpenAPI 3.0.3 says. In a
  schema with `$schema` it means nothing.
* **`discriminator`** (OpenAPI; Pydantic writes it for tagged unions) next to `anyOf` or `oneOf`: objects have its
  property, in every alternative that declares it. Pydantic does not list a tag with a default (`kind: Literal["cat"] =
  "cat"`) as required, and refuses an object without it. In a schema with `$schema` it means nothing.
* **Malformed keywords** are refused wherever they stand, by the meta-schema of the dialect: under a type that cannot
  use them, and in definitions that nothing refers to. Taken all the same are what outlived its draft (above), numbers
  as `exclusiveMinimum` in draft 4, 1.0 as a count, repeated or no entries of `enum` and `required`, no
  entries of `items` and `prefixItems`, fragments in `$id`.
  A schema in which no keyword says anything (an example, a wrapper `{{"name", "schema"}}`) is refused with what to
  write. Keywords of another type than the declared one are warnings of `dotllm check`, errors with `--strict`.
  So are optional properties and branches that nothing satisfies, which no document has.
* A schema that **nothing satisfies** is refused, with the innermost place that every document needs and the keywords
  there that exclude each other.

### Pydantic and zod types that ask for more

A type may ask for more than the schema that Pydantic or zod makes of it. Such an answer is valid under the schema and
may fail to load. These are lost on the way (`tests/languages/json_schema/test_pydantic_walks.py` and
`tests/corpus/json_schema/zod.json` list them, and nothing else):

* Pydantic: `max_digits` and `decimal_places` of `Decimal` (the schema is any number or any string); bounds of dates,
  times and durations, `PastDate`, `NaiveDatetime`; the scheme of `HttpUrl` and its like; types of keys that are no
  strings (`dict[int, str]`); `Json`; tags of unions that a function finds; validators of your own.
* zod: `refine`, `transform`, `pipe`, `stringbool`; the protocol and host of a URL; `jwt`.
* zod 3 with zod-to-json-schema: which offset, precision and zone a date and time has (`datetime()` asks for `Z`,
  `time()` for none); base64; quoted e-mail addresses; lengths (it counts UTF-16 units).

Say the bound in the schema, and it is enforced:

```python
import json
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

AMOUNT = {{"type": "string", "pattern": r"^-?[0-9]{{1,6}}[.][0-9]{{2}}$"}}


class Bill(BaseModel):
    total: Annotated[Decimal, Field(max_digits=8, decimal_places=2), WithJsonSchema(AMOUNT)]


assert Bill.model_json_schema()["properties"]["total"]["pattern"] == AMOUNT["pattern"]
assert Bill.model_validate_json(json.dumps({{"total": "123456.78"}})).total == Decimal("123456.78")
```

### x-guidance

Options that llguidance reads at the root of a schema, and that guidance's client writes: `item_separator`
and `key_separator` (regular expressions of the comma and the colon with white space around them),
`whitespace_flexible` (false: none except the separators'), `whitespace_pattern`, which may come any
number of times. `coerce_one_of` and `lenient` change nothing: `oneOf` is exact, and what cannot be
enforced is refused. `json_allowed_escapes` and anything else are refused; so is `x-guidance` in
styles other than JSON. Below the root it has no meaning, as there,
and is warned of.

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
    """Why tests are refused or differ, without the details of single schemas."""
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
    for words in ("leads to another document", "is not a dialect", "finite set", "cannot be enforced", "states"):
        if words in message:
            return {"finite set": "over values that are not finitely many", "states": "needs too many states"}.get(
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
    """Write the document, or only compare it."""
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
