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
from dotllm.languages.json_schema.json_text import MAX_BLANKS, MAX_TABS, MAX_WHITESPACE
from dotllm.languages.json_schema.numbers.bounded_numbers import MOST_CHARACTERS, SURE_DIGITS
from dotllm.languages.json_schema.strings.formats.registry import FORMATS
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
    "(recursion)": "of any kind; a schema that is defined only as itself means nothing, and is refused",
    "additionalProperties": "applies to exactly the keys that `properties` and `patternProperties` do not describe",
    "contains": "with `minContains` and `maxContains` (2019-09 on), with any `items`",
    "contentEncoding, contentMediaType": "annotations, as the standard says",
    "default": "an annotation",
    "dependencies": "both forms, in every dialect",
    "enum": "of any values; strings in canonical spelling",
    "format": "see below; a format that no standard defines is an annotation",
    "multipleOf": "integers and decimals, with bounds; refused where the automaton has too many states",
    "not": "of everything",
    "oneOf": "exactly one: overlaps are excluded",
    "pattern": "may match anywhere, as in ECMA-262; combined exactly with lengths and formats ([regex.md](regex.md))",
    "properties": "a declared key never appears twice",
    "unevaluatedItems": "decided when the schema is compiled, case by case",
    "unevaluatedProperties": "decided when the schema is compiled, case by case",
    "uniqueItems": "of any items, however they are written, at most 500 levels deep; with `contains`, but not "
    "if `minContains`, `maxContains` or a tuple is there, too; under `not`, only over few values",
}

HEAD = """# JSON Schema: what is enforced

<!-- Written by `python -m tools.json_schema_report` from the verdicts on the official test suite. Do not edit. -->

Look up whether a keyword or a format is enforced, how documents are written, and what is refused. A schema is enforced
exactly, or the request is refused with the keyword and its JSON Pointer. The masks allow exactly the valid documents,
[written as described below](#how-a-document-is-written). dotllm reads drafts 4, 6, 7, 2019-09 and 2020-12; a schema
without `$schema` is read as 2020-12. As the standard says, unknown keywords and keywords that assert nothing are
ignored.

## Keywords

The table counts the required and optional tests of the
[JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite). Every document is tried as compact
and as spaced text, with keys in any order and open objects. *a/b* means that a of b tests have the right verdict; the
others are refused with the keyword's name, or differ for the reason given. No verdict is wrong.

| keyword | 2020-12 | 7 | |
|---|---|---|---|
"""
FORMATS_HEAD = """
## Formats

A format allows the strings that its standard allows, as far as an automaton can decide that. A `pattern` or a length
applies in addition. Times, dates and durations are restricted to those that common parsers accept (Python's `datetime`,
Pydantic, JavaScript): no second 60, `T` and `Z` in upper case (RFC 3339 §5.6 asks this of writers), no year 0000, at
most fifteen digits in a fraction, at most six or eight digits in a component of a duration. The local part of an e-mail
address has at most 64 characters (RFC 5321 §4.5.3.1.1), so that a model ends it. Its domain is fully qualified (RFC
5321 §2.3.5), and the last label has only letters, because Pydantic, zod and valibot refuse others. `dotllm check` names
the formats that are not enforced (`jwt`, `password`, `int32`, unknown ones). It also names `contentEncoding`,
`contentMediaType` and `contentSchema`, which are only annotations.

| format | standard | 2020-12 | 7 | |
|---|---|---|---|---|
"""
TEXT = f"""
## How a document is written

* **Keys** come in declared order: first those of `properties`, in the order of the schema's text (with `allOf`, `$ref`
  and so on, in the order in which a reader meets them), then all others. `--dotllm-property-order any`, or a
  request's `"vllm_xargs": {{"dotllm_property_order": "any"}}`, allows any order.
* **Objects that list `properties`** are closed: they have no other keys unless the schema mentions others. The standard
  allows more; dotllm chooses among what it allows, so every answer is still valid. An object is closed as a whole. Its
  keys are those that `properties` and `patternProperties` name in any schema that applies to it: in all schemas of an
  `allOf`, in `$ref`, `if` and `dependentSchemas` where they apply, and in the alternative of `anyOf` or `oneOf` that is
  written. Schemas in `not` and `if`, and in the other alternatives of `oneOf`, are not closed.
  * `additionalProperties` and `unevaluatedProperties` apply where a schema has them, and the objects of an `enum` stay
    as they are. Objects without `properties` are maps, and stay open, even with `patternProperties` or `propertyNames`.
  * Closing never removes a key that must be present (`required`, `dependentRequired`), even if no schema lists the key.
    An object stays open if it would otherwise be impossible (`minProperties` above the number of keys that are
    listed). All objects of the schema stay open if nothing would satisfy the closed schema, or if closing would exceed
    a budget.
  * `--dotllm-additional-properties open`, a request's `"vllm_xargs": {{"dotllm_additional_properties": "open"}}` and
    `additional_properties="open"` in Python open these objects; `closed` closes them. `%json` in a Lark grammar is
    open.
  * vLLM's `disable_additional_properties` (in Python `additional_properties=False`) is stricter. It also closes objects
    that have only `patternProperties`, and makes no exceptions: a schema whose `required` names a key that is not
    listed is refused. A request may not combine it with `"open"`.
* **Additional keys** (those that no schema names, in open objects, and those that match `patternProperties`) are
  spelled canonically and are never declared keys, so no spelling can hide a declared key. In declared order they do not
  begin with a declared key either: after `{{"title": "x", "summary` a model means the key `summary`, but its place has
  passed, so the model would have to continue with `summary_…`, which nobody asked for. (If nearly all keys of a pattern
  begin with a declared key, as those of `^x-` do with the property `x`, they are allowed.) An additional key may appear
  twice, as in any JSON text, unless that matters: where such keys are counted (`minProperties` above the required keys
  and one more, `not` of `maxProperties`), or where one of them must have a certain value (`not` of
  `additionalProperties`), guides remember the keys, and none appears twice. A key that the schema names (also in
  `required` or `dependentRequired`) never appears twice.
* **Values that a text has**: `"vllm_xargs": {{"dotllm_source": TEXT}}` in a request, or `source=TEXT` in Python, allows
  only those strings and numbers that occur in the text, wherever one of them fits
  ([answer quality](answer-quality.md#values-that-the-text-has)). A schema is only narrowed, and never to nothing, so
  every answer is still valid. Keys, booleans and `const` stay as they are.
* **White space** is what `json.dumps(…, indent=…)` and formatters write. Between two tokens there is nothing, one
  space, or a line break (`\\n` or `\\r\\n`) followed by at most {MAX_BLANKS} spaces or {MAX_TABS} tabs. There is none
  before or after the document. So white space cannot run on. `--dotllm-whitespace any` (`whitespace="any"` in Python)
  allows any JSON white space, at most {MAX_WHITESPACE} characters between two tokens. `disable_any_whitespace` allows
  none. `whitespace_pattern` allows the JSON white space that the pattern matches; a pattern that matches anything else
  is refused.
* **`json.dumps(…, ensure_ascii=False)`** writes documents that are allowed, with these exceptions, all of which
  `json.dumps` or a formatter may write:
  * nesting deeper than 16 levels at `indent=2`, or than 8 levels at `indent=4` or a tab;
  * anything before or after the document, such as the line break at the end of a file, or a byte order mark;
  * two spaces or a tab within a line (aligned columns), an empty line, a space at the end of a line;
  * keys in another order than above (`sort_keys`), unless `property_order="any"`;
  * keys that an object does not list, unless its schema has `additionalProperties` or objects are open;
  * escapes (`ensure_ascii`, `\\/`) in keys, and in strings with conditions other than lengths; unpaired surrogates;
  * `1.0` and `1e3` under `type: integer`, `1e-08` under `multipleOf`, `-0.0` where nothing negative is allowed, `NaN`.
* **Strings** with no condition, or only a length, may be spelled in any way that RFC 8259 allows. All other strings,
  and keys, are written raw where JSON allows that. Lengths count code points. Unpaired surrogates are not Unicode text,
  and are not allowed.
* **Integers** (`type: integer`) are written without a fraction or an exponent. Other numbers may be written in any way
  if the schema does not restrict their scale. Otherwise they are written in decimal or scientific notation, and
  multiples only in decimal. `-0` is allowed only where negative numbers are allowed as well. A number in a schema has
  at most 2,000 digits. A server reads the numbers in a request as doubles, so a number of more than 17 digits stands
  for the nearest double. All digits count where a schema is given as text (`structured_outputs.json` as a string,
  `dotllm check`, Python).
* **Numbers are bounded**, so that every parser accepts them. They have at most {MOST_CHARACTERS} characters without the
  sign, or as many as the schema's own numbers need. They are finite as doubles (integers, too, unless the schema has
  only larger integers). At an open bound (`exclusiveMinimum`, `not`) they are on the right side even as doubles:
  `7e-76577` is not above 0. Exponents reach 307 after a single digit, and 199 otherwise. Where multiples are excluded
  (`not` of `multipleOf`), numbers have at most {SURE_DIGITS} characters. `--dotllm-number-digits any`, a request's
  `"vllm_xargs": {{"dotllm_number_digits": "any"}}` or `number_digits="any"` in Python lifts these bounds; in arguments
  of tool calls, numbers stay finite.
* **`$schema`** of OpenAPI 3.1 and 3.2 (`https://spec.openapis.org/oas/3.1/dialect/base`) is read as 2020-12 with
  annotations.
* **`nullable: true`** (OpenAPI 3.0) next to `type` allows null as well, but adds nothing to an `enum`, as OpenAPI 3.0.3
  says. In a schema with `$schema` it means nothing.
* **`discriminator`** (OpenAPI; Pydantic writes it for tagged unions) next to `anyOf` or `oneOf` makes its property
  required in every alternative that declares it. (Pydantic does not list a tag with a default, `kind: Literal["cat"] =
  "cat"`, as required, and yet refuses an object without the tag.) In a schema with `$schema` it means nothing. Some
  clients leave the keyword out (pydantic-ai). So in a `oneOf` of objects, a property is required as well if each of
  them lists other strings for it, and requires it or has one of these as its default.
* **`$ref: "/$defs/Name"`**, which lacks the `#` (LiteLLM writes it for Anthropic's API), is read as `#/$defs/Name`,
  with a warning, if there is such a definition and the schema has no `$id`. So is `/definitions/Name`.
* **Malformed keywords** are refused wherever they are, by the meta-schema of the dialect: even under a type that has no
  use for them, and in definitions that nothing refers to. Exceptions are keywords of an earlier draft (above), numbers
  as `exclusiveMinimum` in draft 4, 1.0 as a count, repeated or no members of `enum` and `required`, no members of
  `items` and `prefixItems`, and fragments in `$id`. A schema in which no keyword asserts anything (an example, or a
  wrapper `{{"name", "schema"}}`) is refused, and the message says what to write. `dotllm check` warns about keywords
  that do not belong to the declared type, and about optional properties and branches that nothing satisfies and no
  document therefore has. With `--strict` these are errors.
* A schema that **nothing satisfies** is refused. The message names the innermost place that every document needs, and
  the keywords there that exclude each other.

### Pydantic and zod types that ask for more

A type may ask for more than the schema that Pydantic or zod generates from it. An answer may then be valid under the
schema and still fail to load. These are the conditions that get lost
(`tests/languages/json_schema/test_pydantic_walks.py` and `tests/corpus/json_schema/zod.json` have the complete lists):

* Pydantic: `max_digits` and `decimal_places` of `Decimal` (its schema allows any number or any string); bounds of
  dates, times and durations, `PastDate`, `NaiveDatetime`; the scheme of `HttpUrl` and similar types; types of keys that
  are not strings (`dict[int, str]`); `Json`; tags of unions that a function computes; validators of your own.
* zod: `refine`, `transform`, `pipe`, `stringbool`; the protocol and host of a URL; `jwt`.
* zod 3 with zod-to-json-schema: the offset, precision and zone of a date and time (`datetime()` asks for `Z`, `time()`
  for none); base64; quoted e-mail addresses; lengths (zod counts UTF-16 units).

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

llguidance reads options at the root of a schema, and guidance's client writes them. dotllm enforces these:
`item_separator` and `key_separator` (regular expressions for the comma and the colon with the white space around
them), `whitespace_flexible` (false: no white space except in the separators), and `whitespace_pattern`, which may match
any number of times. `coerce_one_of` and `lenient` change nothing: `oneOf` is exact, and what cannot be enforced is
refused. `json_allowed_escapes` and all other options are refused, and so is `x-guidance` in styles other than JSON.
Below the root, `x-guidance` means nothing (as in llguidance), and `dotllm check` warns about it.

## Limits

Everything that takes work has a budget. A schema that exceeds one is refused, with the budget's name, on every machine
alike (`SchemaBudget` in `src/dotllm/languages/json_schema/options.py`):

| budget | default | what it counts |
|---|---|---|
"""
BUDGETS = {
    "steps": "work of combining sub-schemas, about a microsecond each",
    "nodes": "combinations of sub-schemas (`allOf`, `not`, …) that are examined",
    "alternatives": "alternatives of a type in a schema: the product of its `anyOf`, `oneOf` and `if`",
    "edges": "size of the automaton over the members of one object or the items of one array",
    "total_edges": "the same, for all of them together",
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
