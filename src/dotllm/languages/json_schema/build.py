"""The entry point: turns a JSON Schema, or "any JSON object", into a Grammar, within its budgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset, Pointer, Related, SpecError, escaped
from dotllm.grammar.analysis import analyse
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_input import stack_limit
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.json_schema.guidance_options import guided
from dotllm.languages.json_schema.options import (
    AdditionalProperties,
    NumberDigits,
    Options,
    Order,
    SchemaBudget,
    Whitespace,
)
from dotllm.languages.json_schema.reading.dialect import dialect_named
from dotllm.languages.json_schema.reading.document import Document
from dotllm.languages.json_schema.reading.ineffective import says_something
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.unsatisfiable import unsatisfiable
from dotllm.languages.regex import regex_to_expression

Schema = dict[str, Any] | bool | str
"""A schema as Python objects (as `json.loads` gives them) or as its JSON text."""

_IN_DECLARED_ORDER = (
    'ask for keys in declared order, in which it compiles: property_order="declared" in Python, '
    '"vllm_xargs": {"dotllm_property_order": "declared"} in a request'
)


def json_schema_to_grammar(
    schema: Schema,
    *,
    any_whitespace: bool = True,
    whitespace_pattern: str | None = None,
    order: Order = "declared",
    additional_properties: AdditionalProperties = "closed",
    default_dialect: str = "2020-12",
    budget: SchemaBudget | None = None,
    whitespace: Whitespace = "formatted",
    number_digits: NumberDigits = "bounded",
    source: str | None = None,
) -> Grammar:
    """The grammar of the JSON documents that ``schema`` allows.

    ``whitespace``: between tokens, either what formatters write or "any" white space. ``any_whitespace=False``: none.
    ``whitespace_pattern``: a regular expression for it.
    ``order``: keys in declared order, or in any order. ``additional_properties``: if "closed", an object whose schema
    lists properties has no others unless the schema allows them; if "open", it may have others (False: see
    `options.AdditionalProperties`).
    ``number_digits="any"``: numbers of any length, including those that parsers refuse or read as infinite.
    ``source``: a text; strings and numbers are taken from it wherever it contains one that the schema allows.
    ``default_dialect``: the dialect of a schema without ``$schema``.
    Raises `InvalidSpecError` (the schema is wrong, or nothing satisfies it), `UnsupportedError` (a keyword cannot be
    enforced) or `BudgetExceededError`, each with the keyword and its JSON Pointer.
    """
    options = Options(
        any_whitespace, whitespace_pattern, order, additional_properties, default_dialect, budget or SchemaBudget(),
        whitespace=whitespace, number_digits=number_digits, source=source,
    )  # fmt: skip
    grammar = Grammar()
    grammar.start = schema_expression(schema, grammar, options)
    return grammar


def json_object_to_grammar(
    *,
    any_whitespace: bool = True,
    whitespace_pattern: str | None = None,
    whitespace: Whitespace = "formatted",
    number_digits: NumberDigits = "bounded",
) -> Grammar:
    """The grammar of all JSON objects (``response_format: json_object``)."""
    return json_schema_to_grammar(
        {"type": "object"},
        any_whitespace=any_whitespace,
        whitespace_pattern=whitespace_pattern,
        whitespace=whitespace,
        number_digits=number_digits,
    )


def schema_expression(schema: Schema, grammar: Grammar, options: Options) -> Expression:
    """An expression of ``grammar`` for the documents of ``schema``. Raises SpecError with a JSON Pointer."""
    parsed = parse(schema) if isinstance(schema, str) else schema
    options = guided(options, parsed)
    begin = len(grammar)

    def write(options: Options) -> Expression:
        keywords, root = read_schema(parsed, options)
        grammar.may_warn |= not keywords.document.is_clear
        emitter = Emitter(from_prelude(grammar, options), keywords, options)
        expression = emitter.expression(root)
        if options.additional_properties != "closed" and not analyse(grammar, begin).derives[expression]:
            raise unsatisfiable(emitter, parsed, keywords.document.scope)
        return expression

    try:
        with stack_limit("the schema"):
            return closed_or_open(write, grammar, options)
    except SpecError as error:
        if isinstance(error.location, Offset):  # the error of a regular expression, which does not know its place
            raise locate_pattern_error(error, parsed) from None
        raise


def closed_or_open(write: Callable[[Options], Expression], grammar: Grammar, options: Options) -> Expression:
    """The result of ``write`` with ``options``, or with open objects if closed ones leave nothing or are refused.

    Closing objects is our choice, so it must not make a schema unusable. `objects.closed` prevents nearly all such
    cases, object by object.

    Raises:
        InvalidSpecError: the schema is wrong.
        BudgetExceededError: the schema with open objects exceeds a budget, too.
    """
    rules = len(grammar.rule_body)
    if options.additional_properties == "closed":
        try:
            result = write(options)
            if analyse(grammar).derives[result]:
                return result
        except InvalidSpecError:  # open objects do not make a wrong schema right
            raise
        except SpecError:
            grammar.abandon(rules)
        options = options._replace(additional_properties="open")
    try:
        return write(options)
    except BudgetExceededError as error:
        if options.order == "any" and _is_written(write, grammar, rules, options._replace(order="declared")):
            raise error.replaced(help=_IN_DECLARED_ORDER) from None
        raise


def _is_written(write: Callable[[Options], Expression], grammar: Grammar, rules: int, options: Options) -> bool:
    """Whether ``write`` succeeds with these options. First abandons the rules from ``rules`` on of a failed attempt."""
    grammar.abandon(rules)
    try:
        write(options)
    except SpecError:
        return False
    return True


def read_schema(schema: Any, options: Options) -> tuple[Keywords, Node]:
    """The reader of ``schema`` and the node of its root. Raises `InvalidSpecError`."""
    document = Document(schema, dialect_named(options.default_dialect), closes=options.additional_properties != "open")
    says_something(schema)
    document.check()
    keywords = Keywords(document, Algebra(options.budget), options)
    return keywords, keywords.node(schema, document.scope)


def parse(text: str) -> Any:
    """Parse JSON text; numbers stay exact. Raises InvalidSpecError or, if it is too large, BudgetExceededError."""
    with stack_limit("the schema"):
        try:
            return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise InvalidSpecError(f"the schema is not JSON: {error}", code="not_json") from None
        except SpecError as error:
            raise error.at(_unreadable(text)) from None
        except (ValueError, InvalidOperation):  # Python reads up to 4,300 digits, and 18 of an exponent
            raise BudgetExceededError(
                "a number of the schema has too many digits", location=_unreadable(text), keyword="number"
            ) from None


def _refuse_constant(name: str) -> Any:
    raise InvalidSpecError(f"the schema is not JSON: {name} is not a number", code="not_json")


def _unreadable(text: str) -> Pointer | None:
    """The place of the first number in ``text`` that `parse` cannot read. None if another member of the same name, of
    which JSON objects keep the last, has replaced it."""
    mark = object()

    def marking(read: Callable[[str], Any]) -> Callable[[str], Any]:
        def number(written: str) -> Any:
            try:
                return read(written)
            except (ValueError, InvalidOperation):
                return mark

        return number

    schema = json.loads(
        text, parse_int=marking(int), parse_float=marking(Decimal), parse_constant=marking(_refuse_constant)
    )
    return next((Pointer(pointer) for pointer, value in _values(schema) if value is mark), None)


# Finds the pattern of a schema that caused an error of a regular expression.
#
# Patterns are compiled late, when a normal form no longer knows its sub-schemas. So the patterns of the schema are
# compiled again, and the one that fails with the same message is taken.


def locate_pattern_error(error: SpecError, schema: Any) -> SpecError:
    """``error`` with the pattern that raises it and the pattern's JSON Pointer in ``schema``, if there is one."""
    for pointer, keyword, pattern in _patterns(schema):
        try:
            regex_to_expression(pattern, Grammar(), search=True, dialect="ecma")
        except SpecError as found:
            if str(found) == str(error):
                message = f"{keyword} {_shortened(pattern)}: {error}"
                related = [Related(Pointer(pointer).around(error.location), "here")]
                return error.replaced(
                    message=message, location=Pointer(pointer), keyword=keyword, help="", related=related
                )
    return error


def _patterns(schema: Any) -> Iterator[tuple[str, str, str]]:
    """(JSON Pointer, keyword, pattern), in the order of the document."""
    for pointer, value in _values(schema):
        if not isinstance(value, dict):
            continue
        pattern, properties = value.get("pattern"), value.get("patternProperties")
        if isinstance(pattern, str):
            yield f"{pointer}/pattern", "pattern", pattern
        if isinstance(properties, dict):
            for source in properties:
                yield f"{pointer}/patternProperties/{escaped(str(source))}", "patternProperties", source


def _values(schema: Any) -> Iterator[tuple[str, Any]]:
    """(JSON Pointer, value) of all values of a document, in its order; without recursion, as schemas may be deep."""
    stack: list[tuple[str, Any]] = [("", schema)]
    while stack:  # bounded: by the document, for an error
        pointer, value = stack.pop()
        yield pointer, value
        if isinstance(value, (dict, list)):
            children = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [(f"{pointer}/{escaped(str(name))}", child) for name, child in children][::-1]


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:60] + "…")
