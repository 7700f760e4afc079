"""The formats with tags in them, and free text until one begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dotllm.errors import InvalidSpecError, Pointer
from dotllm.grammar import Expression
from dotllm.languages.dispatch import token_tag_dispatch
from dotllm.languages.json_input import read_json
from dotllm.languages.structural_tag.compiler import Ends, Format, TagCompiler
from dotllm.languages.structural_tag.fields import Fields


class Tag(NamedTuple):
    """A tag, compiled but for where it begins."""

    begin: str
    rest: Callable[[int], Expression]  # content and end, behind the first n characters of begin


def _tag(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    begin = fields.any("begin")
    rest = _tag_rest(compiler, fields)
    if isinstance(begin, str):
        opening = compiler.text(begin)
    else:
        opening = compiler.grammar.tokens([compiler.token_of_format(begin, fields.at("begin"))])
    return compiler.grammar.seq([opening, rest])


def _tag_rest(compiler: TagCompiler, fields: Fields) -> Expression:
    """Content and end of a tag.

    Raises:
        InvalidSpecError: the end is no string, strings, or token.
    """
    end = fields.any("end")
    content = fields.any("content")
    if isinstance(end, Mapping):
        token = compiler.token_of_format(end, fields.at("end"))
        inner = compiler.format(content, fields.at("content"), (token,))
        return compiler.grammar.seq([inner, compiler.grammar.tokens([token])])
    ends = [end] if isinstance(end, str) else end
    if not isinstance(ends, list) or not ends or not all(isinstance(text, str) for text in ends):
        raise InvalidSpecError("'end' must be a string, strings, or a token", location=fields.at("end"), keyword="end")
    inner = compiler.format(content, fields.at("content"), tuple(text for text in ends if text))
    return compiler.grammar.seq([inner, compiler.grammar.alt([compiler.text(text) for text in ends])])


def _tag_of(compiler: TagCompiler, begin: str, rest: Expression) -> Tag:
    return Tag(begin, lambda n: compiler.grammar.seq([compiler.text(begin[n:]), rest]))


def _tags(compiler: TagCompiler, fields: Fields) -> list[Tag]:
    """The tags of a list, which must begin with strings.

    Raises:
        InvalidSpecError: there is none.
    """
    tags = []
    for i, value in enumerate(fields.items("tags")):
        tag = Fields(value, fields.at("tags") / i)
        tag.any("type", None)
        begin, tail = tag.string("begin"), _tag_rest(compiler, tag)
        tag.finish()
        tags.append(_tag_of(compiler, begin, tail))
    if not tags:
        raise InvalidSpecError("'tags' must not be empty", location=fields.at("tags"), keyword="tags")
    return tags


def _triggered_tags(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    tags, triggers = _tags(compiler, fields), fields.strings("triggers")
    return triggered(
        compiler, tags, triggers, fields.strings("excludes"), ends, fields.at("triggers"),
        at_least_one=fields.flag("at_least_one"), stop_after_first=fields.flag("stop_after_first"),
    )  # fmt: skip


def triggered(
    compiler: TagCompiler, tags: list[Tag], triggers: list[str], excluded: list[str], ends: Ends, pointer: Pointer, *,
    at_least_one: bool, stop_after_first: bool,
) -> Expression:  # fmt: skip
    """Free text with tags behind their triggers; ``at_least_one``: it begins with a tag.

    Raises:
        InvalidSpecError: there is no trigger, or a tag does not begin with exactly one.
    """
    grammar = compiler.grammar
    if not triggers:
        raise InvalidSpecError("'triggers' must not be empty", location=pointer, keyword="triggers")
    groups: dict[str, list[Tag]] = {trigger: [] for trigger in triggers}
    for tag in tags:
        matching = [trigger for trigger in groups if tag.begin.startswith(trigger)]
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


def _token_triggered_tags(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    grammar = compiler.grammar
    triggers = compiler.tokens(fields, "trigger_tokens")
    excluded = compiler.tokens(fields, "exclude_tokens")
    tags = []
    for i, value in enumerate(fields.items("tags")):
        tag = Fields(value, fields.at("tags") / i)
        tag.any("type", None)
        token = compiler.token_of_format(tag.any("begin"), tag.at("begin"))
        if token not in triggers:
            raise InvalidSpecError("no trigger token begins this tag", location=tag.at("begin"), keyword="begin")
        tags.append((token, _tag_rest(compiler, tag)))
        tag.finish()
    at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
    first = grammar.alt([grammar.seq([grammar.tokens([token]), rest]) for token, rest in tags])
    if at_least_one and once:
        return first
    text = token_tag_dispatch(grammar, tags, [*triggers, *excluded], loop=not once)
    return grammar.seq([first, text]) if at_least_one else text


def _tags_with_separator(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    grammar = compiler.grammar
    separator = compiler.text(fields.string("separator"))
    tags = [
        compiler.format({"type": "tag", **tag} if isinstance(tag, Mapping) else tag, fields.at("tags") / i, ())
        for i, tag in enumerate(fields.items("tags"))
    ]
    at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
    one = grammar.alt(tags)
    rule = grammar.rule("tag")
    grammar.define(rule, one)
    one = grammar.call(rule)
    found = one if once else grammar.seq([one, grammar.repeat(grammar.seq([separator, one]))])
    return found if at_least_one else grammar.optional(found)


def _dispatch(compiler: TagCompiler, fields: Fields, ends: Ends) -> Expression:
    rules = []
    for i, rule in enumerate(fields.items("rules")):
        at = fields.at("rules") / i
        if not isinstance(rule, list | tuple) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
            raise InvalidSpecError("a rule is a pattern and a format", location=at, keyword="rules")
        rules.append((rule[0], compiler.format(rule[1], at / 1, ends)))
    return compiler.free(rules, fields.strings("excludes"), ends, loop=fields.flag("loop", True))


def _token_dispatch(compiler: TagCompiler, fields: Fields, _: Ends) -> Expression:
    rules = []
    for i, rule in enumerate(fields.items("rules")):
        at = fields.at("rules") / i
        if not isinstance(rule, list | tuple) or len(rule) != 2:
            raise InvalidSpecError("a rule is a token and a format", location=at, keyword="rules")
        rules.append((compiler.token(rule[0], at / 0), compiler.format(rule[1], at / 1, ())))
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


TAGS: Mapping[str, Format] = {
    "tag": _tag,
    "triggered_tags": _triggered_tags,
    "token_triggered_tags": _token_triggered_tags,
    "tags_with_separator": _tags_with_separator,
    "dispatch": _dispatch,
    "token_dispatch": _token_dispatch,
}
"""By ``type``."""
