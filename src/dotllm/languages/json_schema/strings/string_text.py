"""Writes a language of strings, as values and as keys (see `spelling`). The sets are in `string_language`."""

from __future__ import annotations

from functools import partial

from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.strings import additional_keys, spelling, string_network
from dotllm.languages.json_schema.strings.forbidden_substrings import ForbiddenSubstrings, inside
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.languages.json_schema.strings.string_automata import (
    StringConstraint,
    format_length,
    in_order,
    unlimited_dfa,
)
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.regex import regex_to_expression
from dotllm.languages.regex.build import Writing


def string_expression(language: StringLanguage, context: Context) -> Expression:
    """The JSON strings of a language, quotes included, as one rule of the grammar shared by all uses."""
    if context.forbidden is not None:
        return _without_forbidden(language, context, context.forbidden)
    return _rule(language, context, as_key=False)


def key_expression(keys: StringLanguage, context: Context) -> Expression:
    """The JSON strings of a language as keys: only the canonical spelling, so that escapes cannot disguise a name.

    Rules of `additional_keys` are defined later.
    """
    if context.forbidden is not None:
        return _rule(keys & context.forbidden.strings, context, as_key=True)
    if len(keys.constraints) == 1 and not keys.values:
        (constraint,) = keys.constraints
        low, high, _, lacking, excluded = constraint
        if excluded and constraint.is_cofinite and len(lacking) < 2 and (low, high) == (0, None):
            beginnings = next((atom.content for atom in lacking if isinstance(atom.content, tuple)), ())
            return additional_keys.keys_except(context, excluded, beginnings)
    return _rule(keys, context, as_key=True)


def _rule(language: StringLanguage, context: Context, *, as_key: bool) -> Expression:
    # Strings with a condition are spelled canonically anyway: only constraints on the length alone have two forms.
    key = (language, as_key and any(constraint.simple for constraint in language.constraints))
    result = context.memo.get(key)
    if result is None:
        grammar = context.grammar
        rule = grammar.rule("key" if as_key else "string")
        context.memo[key] = result = grammar.call(rule)
        grammar.define(rule, _alternatives(language, context, as_key=as_key))
    return result


def _alternatives(language: StringLanguage, context: Context, *, as_key: bool) -> Expression:
    grammar = context.grammar
    choices: list[Expression] = []
    if language.values:
        single = [value for value in language.values if spelling.has_one_spelling(value)]
        choices.append(grammar.literals(map(spelling.quoted, single)))
        several = language.values.difference(single)
        choices.extend(spelling.literal(grammar, value) for value in sorted(several))
    # Sorted, so that equal schemas give equal grammars.
    constraints = in_order(language.constraints) if len(language.constraints) > 1 else language.constraints
    after_quote = [_after_quote(context, constraint, as_key=as_key) for constraint in constraints]
    if after_quote:
        choices.append(grammar.seq([grammar.literal(b'"'), grammar.alt(after_quote)]))
    return grammar.alt(choices)


def _without_forbidden(language: StringLanguage, context: Context, forbidden: ForbiddenSubstrings) -> Expression:
    """The JSON strings of a language that contain none of the excluded texts."""
    grammar, memo = context.grammar, context.memo
    if language.values or len(language.constraints) != 1:
        return _rule(language & forbidden.strings, context, as_key=False)
    (constraint,) = language.constraints
    key = (forbidden.texts, constraint)
    if key in memo:
        return memo[key]
    text = (
        inside(grammar, forbidden, constraint.low, constraint.high)
        if constraint.simple and not constraint.excluded
        else None
    )
    if text is None:
        return _rule(language & forbidden.strings, context, as_key=False)
    rule, quote = grammar.rule("string"), grammar.literal(b'"')
    memo[key] = result = grammar.call(rule)
    grammar.define(rule, grammar.seq([quote, text, quote]))
    return result


def _after_quote(context: Context, constraint: StringConstraint, *, as_key: bool) -> Expression:
    """The text after the opening quote."""
    if constraint.simple and (constraint.low, constraint.high) == (0, None):
        if constraint.excluded:
            return additional_keys.after_quote(context, constraint.excluded)
        if as_key:
            return additional_keys.rest_of_string(context)
    grammar = context.grammar
    return grammar.seq([_inside(context, constraint, as_key=as_key), grammar.literal(b'"')])


def _inside(context: Context, constraint: StringConstraint, *, as_key: bool) -> Expression:
    """The content between the quotes."""
    grammar = context.grammar
    if constraint.simple and not constraint.excluded:
        make = spelling.any_canonical_character if as_key else spelling.any_character
        character = context.memo.get(make)
        if character is None:
            character = context.memo[make] = make(grammar)
        return string_network.repeat(grammar, character, constraint.low, constraint.high)
    if len(constraint.having) == 1 and not constraint.lacking and not constraint.excluded:
        (atom,) = constraint.having
        if atom.kind == "pattern":
            return _pattern(grammar, constraint, str(atom.content))
        if atom.kind == "format":
            length = constraint.low, constraint.high
            if length == format_length(atom):
                return formats.fragment(str(atom.content)).copy_into(grammar)
            return formats.fragment_of_length(str(atom.content), *length).copy_into(grammar)
    return string_network.content(grammar, unlimited_dfa(constraint), constraint.low, constraint.high)


def _pattern(grammar: Grammar, constraint: StringConstraint, source: str) -> Expression:
    """One pattern with bounds on the length: repetitions stay counted if possible. Raises BudgetExceededError."""
    try:
        return regex_to_expression(
            source,
            grammar,
            search=True,
            dialect="ecma",
            writing=Writing(
                partial(spelling.character, grammar),
                partial(spelling.text_inside, grammar),
                partial(string_network.content, grammar),
            ),
            minimum=constraint.low,
            maximum=constraint.high,
        )
    except BudgetExceededError:
        if (constraint.low, constraint.high) == (0, None):
            raise
        return string_network.content(grammar, unlimited_dfa(constraint), constraint.low, constraint.high)
