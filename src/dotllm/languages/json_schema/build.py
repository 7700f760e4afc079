"""The entry point: a JSON Schema, or "any JSON object", as a Grammar."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset, SpecError
from dotllm.grammar.analysis import analyse
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_input import stack_limit
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.json_schema.options import Options, Order, SchemaBudget, Whitespace
from dotllm.languages.json_schema.pattern_errors import locate_pattern_error
from dotllm.languages.json_schema.reading.dialect import dialect_named
from dotllm.languages.json_schema.reading.document import Document
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.unsatisfiable import unsatisfiable

Schema = dict[str, Any] | bool | str
"""A schema as Python objects (as `json.loads` gives them) or as its JSON text."""


def json_schema_to_grammar(
    schema: Schema,
    *,
    any_whitespace: bool = True,
    whitespace_pattern: str | None = None,
    order: Order = "declared",
    additional_properties: bool | None = None,
    default_dialect: str = "2020-12",
    budget: SchemaBudget | None = None,
    whitespace: Whitespace = "formatted",
) -> Grammar:
    """The texts of the JSON documents that ``schema`` allows.

    ``whitespace``: what formatters write between tokens, or "any" white space. ``any_whitespace=False``: none.
    ``whitespace_pattern``: a regular expression for it.
    ``order``: keys in declared order, or in any. ``additional_properties=False``: objects have no
    properties but those that the schema names, unless it says so. ``default_dialect``: of a schema without ``$schema``.
    Raises `InvalidSpecError` (the schema is wrong, or nothing satisfies it), `UnsupportedError` (a keyword cannot be
    enforced) or `BudgetExceededError`, each with the keyword and its JSON Pointer.
    """
    options = Options(
        any_whitespace, whitespace_pattern, order, additional_properties, default_dialect, budget or SchemaBudget(),
        whitespace=whitespace,
    )  # fmt: skip
    grammar = Grammar()
    grammar.start = schema_expression(schema, grammar, options)
    return grammar


def json_object_to_grammar(
    *, any_whitespace: bool = True, whitespace_pattern: str | None = None, whitespace: Whitespace = "formatted"
) -> Grammar:
    """The texts of all JSON objects (``response_format: json_object``)."""
    return json_schema_to_grammar(
        {"type": "object"}, any_whitespace=any_whitespace, whitespace_pattern=whitespace_pattern, whitespace=whitespace
    )


def schema_expression(schema: Schema, grammar: Grammar, options: Options) -> Expression:
    """The same as part of a larger grammar: an expression of ``grammar`` for the documents of ``schema``.

    Raises:
        SpecError: the schema is refused; ``location`` is a JSON Pointer.
    """  # noqa: DOC501 - functions make the errors
    parsed = parse(schema) if isinstance(schema, str) else schema
    try:
        with stack_limit("the schema"):
            keywords, root = read_schema(parsed, options)
            emitter = Emitter(from_prelude(grammar, options), keywords, options)
            expression = emitter.expression(root)
            if not analyse(grammar).derives[expression]:
                raise unsatisfiable(emitter, parsed, keywords.document.scope)
    except SpecError as error:
        if isinstance(error.location, Offset):  # of a regular expression, which does not know where it stands
            raise locate_pattern_error(error, parsed) from None
        raise
    return expression


def read_schema(schema: Any, options: Options) -> tuple[Keywords, Node]:
    """The node of ``schema``, whose form is the schema's, and the reader that knows it. Raises `InvalidSpecError`."""
    document = Document(schema, dialect_named(options.default_dialect), closes=options.additional_properties is False)
    keywords = Keywords(document, Algebra(options.budget), options)
    return keywords, keywords.node(schema, document.scope)


def parse(text: str) -> Any:
    """JSON text, with numbers exactly as they are written.

    Raises:
        InvalidSpecError: ``text`` is not JSON.
        BudgetExceededError: the value is nested too deeply, or has a number of too many digits.
    """  # noqa: DOC501 - SpecError is their base
    try:
        with stack_limit("the schema"):
            return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidSpecError(f"the schema is not JSON: {error}", code="not_json") from None
    except SpecError:
        raise
    except (ValueError, InvalidOperation):  # Python reads integers of 4,300 digits, exponents of 18
        raise BudgetExceededError("a number of the schema has too many digits", keyword="number") from None


def _refuse_constant(name: str) -> Any:
    raise InvalidSpecError(f"the schema is not JSON: {name} is not a number", code="not_json")
