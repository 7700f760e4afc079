"""The formats that combine others: sequences, choices and repetitions."""

from __future__ import annotations

from collections.abc import Mapping

from dotllm.errors import InvalidSpecError
from dotllm.grammar import Expression
from dotllm.languages.structural_tag.compiler import Ends, Format, TagCompiler
from dotllm.languages.structural_tag.fields import Fields


def _sequence(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    elements = fields.items("elements")
    return compiler.grammar.seq([compiler.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])


def _any_of(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    elements = fields.items("elements")
    if not elements:
        raise InvalidSpecError("'or' needs at least one element", location=fields.at("elements"), keyword="elements")
    return compiler.grammar.alt([compiler.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])


def _optional(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    return compiler.grammar.optional(compiler.format(fields.any("content"), fields.at("content"), ends))


def _plus(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    return compiler.grammar.repeat(compiler.format(fields.any("content"), fields.at("content"), ends), 1)


def _star(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    return compiler.grammar.repeat(compiler.format(fields.any("content"), fields.at("content"), ends))


def _repeat(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    low, high = fields.count("min"), fields.count("max", minimum=-1)
    if 0 <= high < low:
        raise InvalidSpecError("'max' is below 'min'", location=fields.at("max"), keyword="max")
    body = compiler.format(fields.any("content"), fields.at("content"), ends)
    return compiler.grammar.repeat(body, low, None if high < 0 else high)


COMBINATIONS: Mapping[str, Format] = {
    "sequence": _sequence,
    "or": _any_of,
    "optional": _optional,
    "plus": _plus,
    "star": _star,
    "repeat": _repeat,
}
"""By ``type``."""
