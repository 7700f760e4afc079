"""The formats that hold no other: fixed and free text, schemas, expressions, grammars, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.grammar import Expression
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.json_schema import Options
from dotllm.languages.regex import regex_to_expression
from dotllm.languages.structural_tag import markup
from dotllm.languages.structural_tag.compiler import Ends, Format, TagCompiler
from dotllm.languages.structural_tag.fields import Fields
from dotllm.languages.structural_tag.raw import some_characters
from dotllm.languages.structural_tag.styles import STYLES, styled_expression


def _const_string(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    return compiler.text(fields.string("value"))


def _json_schema(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    schema, style = fields.any("json_schema"), fields.string("style", "json")
    options = compiler.options
    if fields.flag("any_order"):
        options = options._replace(order="any")
    blanks = fields.count("max_whitespace_cnt", None)
    if blanks is not None:
        options = options._replace(whitespace_pattern=rf"[ \t\n\r]{{0,{blanks}}}")
    pattern = fields.string("whitespace_pattern", "")
    if pattern and blanks is not None:
        raise InvalidSpecError(
            "'whitespace_pattern' together with 'max_whitespace_cnt'",
            location=fields.at("whitespace_pattern"),
            keyword="whitespace_pattern",
        )
    if pattern and options.any_whitespace:
        options = options._replace(whitespace_pattern=pattern)
    options = options._replace(excludes=tuple(fields.strings("excludes")), finite_numbers=fields.flag("finite_numbers"))
    if style == "json":
        return compiler.schema(schema, fields.at("json_schema"), options)
    return _styled(compiler, schema, fields, style, options)


def _qwen_xml_parameter(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    return _styled(compiler, fields.any("json_schema"), fields, "qwen_xml", compiler.options)


def _styled(compiler: TagCompiler, schema: Any, fields: Fields, style: str, options: Options) -> Expression:
    if options.excludes and style in markup.STYLES:
        raise UnsupportedError(f"'excludes' in the style {style!r}", location=fields.at("excludes"), keyword="excludes")
    try:
        if style in markup.STYLES:
            return markup.markup_expression(schema, compiler.grammar, options, style, compiler.text)
        if style in STYLES:
            return styled_expression(schema, compiler.grammar, options, STYLES[style], compiler.text)
    except SpecError as error:
        raise error.at(fields.at("json_schema").around(error.location)) from error
    raise UnsupportedError(f"the style {style!r}", location=fields.at("style"), keyword="style")


def _grammar(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    try:
        other = grammar_to_grammar(fields.string("grammar"), token_names=compiler.token_names)
    except SpecError as error:
        raise error.at(fields.at("grammar").around(error.location)) from error
    return compiler.grammar.include(other)


def _regex(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    try:
        return regex_to_expression(fields.string("pattern"), compiler.grammar, search=False)
    except SpecError as error:
        raise error.at(fields.at("pattern").around(error.location)) from error


def _any_text(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    excluded = fields.strings("excludes")
    tokens, characters = fields.count("max_tokens", None), fields.count("max_chars", None)
    if tokens is not None and (excluded or any(isinstance(end, str) for end in ends)):
        raise UnsupportedError(
            "'max_tokens' together with an end string or 'excludes'",
            location=fields.at("max_tokens"),
            keyword="max_tokens",
        )
    if characters is not None and tokens is not None:
        raise UnsupportedError(
            "'max_tokens' together with 'max_chars'", location=fields.at("max_chars"), keyword="max_chars"
        )
    if characters is not None:
        # Special tokens are no characters, so a text with one in it does not occur anyway.
        plain = [text for text in (*excluded, *compiler.texts(ends)) if len(compiler.symbols(text)) == len(text)]
        return some_characters(compiler.grammar, characters, tuple(plain))
    if tokens is not None:
        stops = [end for end in ends if isinstance(end, int)]
        ordinary = compiler.grammar.tokens([*compiler.token_names.special.values(), *stops], exclude=True)
        return compiler.grammar.repeat(ordinary, 0, tokens)
    return compiler.free([], excluded, ends)


def _token(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    return compiler.grammar.tokens([compiler.token(fields.any("token"), fields.at("token"))])


def _exclude_token(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    return compiler.grammar.tokens(compiler.tokens(fields, "exclude_tokens"), exclude=True)


def _any_tokens(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    one = compiler.grammar.tokens(compiler.tokens(fields, "exclude_tokens"), exclude=True)
    return compiler.grammar.repeat(one, 0, fields.count("max_tokens", None))


CONTENTS: Mapping[str, Format] = {
    "const_string": _const_string,
    "json_schema": _json_schema,
    "qwen_xml_parameter": _qwen_xml_parameter,
    "grammar": _grammar,
    "regex": _regex,
    "any_text": _any_text,
    "token": _token,
    "exclude_token": _exclude_token,
    "any_tokens": _any_tokens,
}
"""By ``type``."""
