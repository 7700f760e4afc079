"""The formats of a structural tag: tags and triggers, combinations, contents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dotllm.errors import InvalidSpecError, Pointer, UnsupportedError
from dotllm.grammar import Expression
from dotllm.languages.cfg import Dialect, grammar_to_grammar
from dotllm.languages.json_input import read_json
from dotllm.languages.json_schema import Options
from dotllm.languages.regex import regex_to_expression
from dotllm.languages.structural_tag import gemma, markup
from dotllm.languages.structural_tag.argument import argument, unknown_style
from dotllm.languages.structural_tag.compiler import Ends, Fields, Format, TagCompiler, located
from dotllm.languages.structural_tag.styles import STYLES, some_characters, styled_expression
from dotllm.languages.tag_dispatch import token_tag_dispatch

# The formats that contain tags, and the free text before them.


class Tag(NamedTuple):
    """A tag, compiled except for its beginning."""

    begin: str
    rest: Callable[[int], Expression]  # content and end, after the first n characters of begin


def _tag(compiler: TagCompiler, fields: Fields, outer: Ends) -> Expression:
    begin = fields.any("begin")
    rest = _tag_rest(compiler, fields, outer)
    if isinstance(begin, str):
        opening = compiler.text(begin)
    else:
        opening = compiler.grammar.tokens([compiler.token_of_format(fields, "begin", "a string or a token")])
    return compiler.grammar.seq([opening, rest])


def _tag_rest(compiler: TagCompiler, fields: Fields, outer: Ends) -> Expression:
    """The content and the end of a tag. ``outer``: the ends of the tag around it, which also end a tag that may end
    without a text of its own.

    Raises:
        InvalidSpecError: the end is not a string, a list of strings or a token.
    """
    end = fields.any("end")
    content = fields.any("content")
    if isinstance(end, Mapping):
        token = compiler.token_of_format(fields, "end")
        inner = compiler.format(content, fields.at("content"), (token,))
        return compiler.grammar.seq([inner, compiler.grammar.tokens([token])])
    ends = [end] if isinstance(end, str) else end
    if not isinstance(ends, list) or not ends or not all(isinstance(text, str) for text in ends):
        raise fields.wrong("end", "'end' must be a string, strings, or a token")
    for i, text in enumerate(ends):
        fields.check_text("end", text, fields.at("end") / i)
    own: Ends = tuple(text for text in ends if text)
    inner = compiler.format(content, fields.at("content"), own if len(own) == len(ends) else (*own, *outer))
    return compiler.grammar.seq([inner, compiler.grammar.alt([compiler.text(text) for text in ends])])


def _tag_of(compiler: TagCompiler, begin: str, rest: Expression) -> Tag:
    return Tag(begin, lambda n: compiler.grammar.seq([compiler.text(begin[n:]), rest]))


def _tags(compiler: TagCompiler, fields: Fields, ends: Ends) -> list[Tag]:
    """The tags of the field ``tags``, which must begin with strings."""
    tags = []
    for tag in fields.objects("tags"):
        tag.require_type("tag")
        begin, tail = tag.string("begin"), _tag_rest(compiler, tag, ends)
        tag.finish()
        tags.append(_tag_of(compiler, begin, tail))
    return tags


def _triggered_tags(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    tags, triggers = _tags(compiler, fields, ends), fields.strings("triggers")
    return triggered(
        compiler, tags, triggers, fields.strings("excludes"), ends, fields.at("triggers"),
        at_least_one=fields.flag("at_least_one"), stop_after_first=fields.flag("stop_after_first"),
    )  # fmt: skip


def triggered(
    compiler: TagCompiler, tags: list[Tag], triggers: list[str], excluded: list[str], ends: Ends, pointer: Pointer, *,
    at_least_one: bool, stop_after_first: bool,
) -> Expression:  # fmt: skip
    """Free text with tags after their triggers; ``at_least_one``: it begins with a tag.

    Raises:
        InvalidSpecError: there is no trigger, or a tag does not begin with exactly one trigger.
    """
    grammar = compiler.grammar
    _require_triggers(triggers, "triggers", pointer, json.dumps([tag.begin for tag in tags], ensure_ascii=False))
    groups: dict[str, list[Tag]] = {trigger: [] for trigger in triggers}
    lengths = {len(trigger) for trigger in groups}
    for tag in tags:
        begins = (tag.begin[:length] for length in lengths if length <= len(tag.begin))
        matching = [begin for begin in begins if begin in groups]
        if len(matching) != 1:
            what = "no trigger" if not matching else "more than one trigger"
            raise InvalidSpecError(f"{what} is a prefix of the tag {tag.begin!r}", location=pointer, keyword="triggers")
        groups[matching[0]].append(tag)
    dispatch = [
        (trigger, grammar.alt([tag.rest(len(trigger)) for tag in group])) for trigger, group in groups.items() if group
    ]
    first = grammar.alt([grammar.seq([compiler.text(trigger), rest]) for trigger, rest in dispatch])
    if at_least_one and stop_after_first:
        return first
    text = compiler.free(dispatch, excluded, ends, loop=not stop_after_first)
    return grammar.seq([first, text]) if at_least_one else text


def _require_triggers(triggers: Sequence[object], field: str, pointer: Pointer, example: str) -> None:
    """Raises InvalidSpecError if there are no triggers."""
    if not triggers:
        raise InvalidSpecError(
            f"{field!r} is missing or empty: no tag could begin in the text",
            location=pointer,
            keyword=field,
            help=f"write {field}: {example}",
        )


def _token_triggered_tags(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    grammar = compiler.grammar
    triggers = compiler.tokens(fields, "trigger_tokens")
    excluded = compiler.excluded_tokens(fields, ends)
    _require_triggers(triggers, "trigger_tokens", fields.at("trigger_tokens"), "the tokens that begin the tags")
    tags = []
    for tag in fields.objects("tags"):
        tag.require_type("tag")
        token = compiler.token_of_format(tag, "begin")
        if token not in triggers:
            raise tag.wrong("begin", "no trigger token begins this tag")
        tags.append((token, _tag_rest(compiler, tag, ends)))
        tag.finish()
    at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
    first = grammar.alt([grammar.seq([grammar.tokens([token]), rest]) for token, rest in tags])
    if at_least_one and once:
        return first
    text = token_tag_dispatch(grammar, tags, [*triggers, *excluded], loop=not once)
    return grammar.seq([first, text]) if at_least_one else text


def _tags_with_separator(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    grammar = compiler.grammar
    separator = compiler.text(fields.string("separator"))
    tags = [
        compiler.format({"type": "tag", **tag} if isinstance(tag, Mapping) else tag, fields.at("tags") / i, ends)
        for i, tag in enumerate(fields.nonempty_list("tags"))
    ]
    at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
    either = grammar.alt(tags)
    rule = grammar.rule("tag")
    grammar.define(rule, either)
    either = grammar.call(rule)
    tags_in_turn = either if once else grammar.seq([either, grammar.repeat(grammar.seq([separator, either]))])
    return tags_in_turn if at_least_one else grammar.optional(tags_in_turn)


def _dispatch(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    rules = []
    for i, rule in enumerate(fields.nonempty_list("rules")):
        at = fields.at("rules") / i
        if not isinstance(rule, list | tuple) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
            raise InvalidSpecError("expected a list of a text and a format", location=at, keyword="rules")
        fields.check_text("rules", rule[0], at / 0)
        rules.append((rule[0], compiler.format(rule[1], at / 1, ends)))
    return compiler.free(rules, fields.strings("excludes"), ends, loop=fields.flag("loop", True))


def _token_dispatch(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    rules = []
    for i, rule in enumerate(fields.nonempty_list("rules")):
        at = fields.at("rules") / i
        if not isinstance(rule, list | tuple) or len(rule) != 2:
            raise InvalidSpecError("expected a list of a token and a format", location=at, keyword="rules")
        rules.append((compiler.token(rule[0], at / 0), compiler.format(rule[1], at / 1, ends)))
    excluded = compiler.tokens(fields, "exclude_tokens")
    return token_tag_dispatch(compiler.grammar, rules, excluded, loop=fields.flag("loop", True))


def legacy_tag(compiler: TagCompiler, item: Fields) -> Tag:
    """One of ``structures``: a begin, a schema and an end. Raises `SpecError`."""
    schema = item.any("schema", {})
    if isinstance(schema, str):
        schema = read_json(schema, "the schema", item.at("schema"))
    content = compiler.schema(schema, item.at("schema"), compiler.options)
    begin, end = item.string("begin"), item.string("end")
    item.finish()
    return _tag_of(compiler, begin, compiler.grammar.seq([content, compiler.text(end)]))


# The formats that combine others: sequences, choices and repetitions.


def _sequence(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    elements = fields.items("elements")
    return compiler.grammar.seq([compiler.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])


def _any_of(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    elements = fields.items("elements")
    if not elements:
        raise fields.wrong("elements", "'or' needs at least one element")
    return compiler.grammar.alt([compiler.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])


def _content(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    return compiler.format(fields.any("content"), fields.at("content"), ends)


def _repeat(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    low, high = fields.count("min"), fields.count("max", minimum=-1)
    if 0 <= high < low:
        raise fields.wrong("max", "'max' is below 'min'")
    return compiler.grammar.repeat(_content(compiler, fields, ends), low, None if high < 0 else high)


# The formats that contain no other format: fixed and free text, schemas, expressions, grammars, tokens.


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
        raise fields.wrong("whitespace_pattern", "'whitespace_pattern' cannot be combined with 'max_whitespace_cnt'")
    if pattern and options.any_whitespace:
        options = options._replace(whitespace_pattern=pattern)
    options = options._replace(excludes=tuple(fields.strings("excludes")))
    if fields.flag("finite_numbers"):
        options = options._replace(number_digits="bounded")
    grammar = fields.any("input_grammar", None)
    if grammar is not None:
        return argument(compiler, grammar, fields, style, options)
    if style == "json":
        return compiler.schema(schema, fields.at("json_schema"), options)
    return _styled(compiler, schema, fields, style, options)


def _styled(compiler: TagCompiler, schema: Any, fields: Fields, style: str, options: Options) -> Expression:
    if options.excludes and style in markup.STYLES:
        wrong = f"'excludes' is not supported in the style {style!r}"
        raise UnsupportedError(wrong, location=fields.at("excludes"), keyword="excludes")
    with located(fields.at("json_schema")):
        if style in markup.STYLES:
            return markup.markup_expression(schema, compiler.grammar, options, style, compiler.text)
        if style in STYLES:
            return styled_expression(schema, compiler.grammar, options, STYLES[style], compiler.text)
        if style == gemma.STYLE:
            return gemma.gemma_expression(schema, compiler.grammar, options, compiler.text)
    raise unknown_style(style, fields)


_DIALECTS: Mapping[str, Dialect] = {"": "auto", "ebnf": "ebnf", "lark": "lark"}


def _grammar(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    text, syntax = fields.string("grammar"), fields.string("syntax", "")
    dialect = _DIALECTS.get(syntax)
    if dialect is None:
        raise fields.wrong("syntax", f"'syntax' must be ebnf or lark, not {syntax!r}")
    with located(fields.at("grammar")):
        other = grammar_to_grammar(text, dialect, compiler.token_names)
    return compiler.grammar.include(other)


def _regex(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    pattern = fields.string("pattern")
    with located(fields.at("pattern")):
        return regex_to_expression(pattern, compiler.grammar, search=False)


def _any_text(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    excluded = fields.strings("excludes")
    tokens, characters = fields.count("max_tokens", None), fields.count("max_chars", None)
    if tokens is not None and (excluded or any(isinstance(end, str) for end in ends)):
        raise UnsupportedError(
            "'max_tokens' cannot be combined with an end string or 'excludes'",
            location=fields.at("max_tokens"),
            keyword="max_tokens",
        )
    if characters is not None and tokens is not None:
        raise UnsupportedError(
            "'max_tokens' cannot be combined with 'max_chars'", location=fields.at("max_chars"), keyword="max_chars"
        )
    if characters is not None:
        texts = [*excluded, *compiler.texts(ends)]
        # Special tokens are not characters, so free text never holds one.
        plain = [text for text in texts if len(compiler.symbols(text)) == len(text)]
        return some_characters(compiler.grammar, characters, (*plain, *compiler.special_names(texts)))
    if tokens is not None:
        stops = [end for end in ends if isinstance(end, int)]
        ordinary = compiler.grammar.tokens([*compiler.token_names.special.values(), *stops], exclude=True)
        return compiler.grammar.repeat(ordinary, 0, tokens)
    return compiler.free([], excluded, ends)


def _exclude_token(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    return compiler.grammar.tokens(compiler.excluded_tokens(fields, ends), exclude=True)


FORMATS: Mapping[str, Format] = {
    "const_string": lambda compiler, fields, _: compiler.text(fields.string("value")),
    "json_schema": _json_schema,
    "qwen_xml_parameter": lambda compiler, fields, _: _styled(
        compiler, fields.any("json_schema"), fields, "qwen_xml", compiler.options
    ),
    "grammar": _grammar,
    "regex": _regex,
    "any_text": _any_text,
    "token": lambda compiler, fields, _: compiler.grammar.tokens(
        [compiler.token(fields.any("token"), fields.at("token"))]
    ),
    "exclude_token": _exclude_token,
    "any_tokens": lambda compiler, fields, ends: compiler.grammar.repeat(
        _exclude_token(compiler, fields, ends), 0, fields.count("max_tokens", None)
    ),
    "sequence": _sequence,
    "or": _any_of,
    "optional": lambda compiler, fields, ends: compiler.grammar.optional(_content(compiler, fields, ends)),
    "plus": lambda compiler, fields, ends: compiler.grammar.repeat(_content(compiler, fields, ends), 1),
    "star": lambda compiler, fields, ends: compiler.grammar.repeat(_content(compiler, fields, ends)),
    "repeat": _repeat,
    "tag": _tag,
    "triggered_tags": _triggered_tags,
    "token_triggered_tags": _token_triggered_tags,
    "tags_with_separator": _tags_with_separator,
    "dispatch": _dispatch,
    "token_dispatch": _token_dispatch,
}
"""The formats by their ``type``."""
