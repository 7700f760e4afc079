"""Structural tags → Grammar, in both request forms.

``{"type": "structural_tag", "format": {...}}`` with the formats of xgrammar 0.2.8, and the legacy
``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, which is triggered_tags over JSON Schemas.

*Special tokens.* Where the text of a begin, end, trigger or constant names a special token of the tokenizer, that
token is matched by its id: it has no bytes, and writing its name out in ordinary tokens is something else.

*Ends.* Free text inside a tag runs until the first end string (as xgrammar has it), so what the tag's reader would
take for the end is the end. The ends are therefore handed down to all free text in the tag, wherever it stands; a tag
in it has its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dotllm import abandonment
from dotllm.errors import BudgetExceeded, InvalidSpec, Pointer, SpecError, Unsupported
from dotllm.grammar import Expression, Grammar
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.dispatch import Symbols, literal, refuse_excluded, symbols, tag_dispatch
from dotllm.languages.json_schema import Options, schema_expression
from dotllm.languages.regex import regex_to_expression
from dotllm.languages.structural_tag.fields import Fields
from dotllm.languages.token_names import TokenNames

MAX_NESTING = 64

Ends = tuple[str | int, ...]  # texts and tokens


class Tag(NamedTuple):
    """A tag, compiled but for where it begins."""

    begin: str
    rest: Callable[[int], Expression]  # content and end, behind the first n characters of begin


def structural_tag_to_grammar(
    spec: Mapping[str, Any] | str, *, token_names: TokenNames | None = None, options: Options | None = None
) -> Grammar:
    """The texts of a structural tag. ``token_names``: the tokenizer's; ``options``: how JSON is written.

    Raises InvalidSpec, Unsupported or BudgetExceeded with JSON Pointers.
    """
    if isinstance(spec, str):
        try:
            spec = json.loads(spec)
        except RecursionError:
            raise BudgetExceeded("the structural tag is nested too deeply", keyword="nesting") from None
        except ValueError as error:  # also for integers of more than 4,300 digits
            raise InvalidSpec(f"the structural tag is not JSON: {error}") from None
    grammar = Grammar()
    compiler = _Compiler(grammar, token_names or TokenNames(), options or Options())
    try:
        grammar.start = compiler.start(Fields(spec, Pointer()))
    except RecursionError:
        raise BudgetExceeded("the structural tag is nested too deeply", keyword="nesting") from None
    return grammar


class _Compiler:
    def __init__(self, grammar: Grammar, token_names: TokenNames, options: Options) -> None:
        self.grammar = grammar
        self.token_names = token_names
        self.options = options
        self.depth = 0
        self._schemas: dict[str, Expression] = {}

    # ---- the two request forms

    def start(self, spec: Fields) -> Expression:
        """The whole specification."""
        if spec.has("structures"):
            triggers = spec.strings("triggers")
            items = [Fields(item, Pointer() / "structures" / i) for i, item in enumerate(spec.items("structures"))]
            tags = [self._legacy_tag(item) for item in items]
            spec.any("type", None)
            spec.finish()
            return self._triggered(
                tags, triggers, [], (), Pointer() / "triggers", at_least_one=False, stop_after_first=False
            )
        kind = spec.string("type", "structural_tag")
        if kind != "structural_tag":
            raise InvalidSpec("'type' must be 'structural_tag'", location=Pointer() / "type", keyword="type")
        found = self.format(spec.any("format"), Pointer() / "format", ())
        spec.finish()
        return found

    def _legacy_tag(self, item: Fields) -> Tag:
        schema = item.any("schema", {})
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except RecursionError:
                where = item.at("schema")
                raise BudgetExceeded("the schema is nested too deeply", location=where, keyword="nesting") from None
            except ValueError as error:
                raise InvalidSpec(f"the schema is not JSON: {error}", location=item.at("schema")) from None
        content = self._schema(schema, item.at("schema"), self.options)
        begin, end = item.string("begin"), item.string("end")
        item.finish()
        return self._tag_of(begin, content, [self._text(end)])

    # ---- formats

    def format(self, value: Any, pointer: Pointer, ends: Ends) -> Expression:
        """One format. ``ends``: the strings that end the innermost tag around it (free text does not hold them)."""
        abandonment.check()
        fields = Fields(value, pointer)
        kind = fields.string("type")
        method = getattr(self, f"_format_{kind}", None)
        if method is None:
            raise Unsupported(f"unknown format {kind!r}", location=fields.at("type"), keyword=kind)
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise BudgetExceeded(f"formats are nested deeper than {MAX_NESTING}", location=pointer, keyword="nesting")
        try:
            found: Expression = method(fields, ends)
        except SpecError as error:
            if error.location is not None:
                raise
            raise error.at(pointer, error.keyword or kind) from None
        self.depth -= 1
        fields.finish()
        return found

    def _format_const_string(self, fields: Fields, _: Ends) -> Expression:
        return self._text(fields.string("value"))

    def _format_json_schema(self, fields: Fields, _: Ends) -> Expression:
        schema, style = fields.any("json_schema"), fields.string("style", "json")
        options = self.options
        if fields.flag("any_order"):
            options = options._replace(order="any")
        blanks = fields.count("max_whitespace_cnt", None)
        if blanks is not None:
            options = options._replace(whitespace_pattern=rf"[ \t\n\r]{{0,{blanks}}}")
        options = options._replace(
            excludes=tuple(fields.strings("excludes")), finite_numbers=fields.flag("finite_numbers")
        )
        if style == "json":
            return self._schema(schema, fields.at("json_schema"), options)
        return self._styled(schema, fields, style, options)

    def _format_qwen_xml_parameter(self, fields: Fields, _: Ends) -> Expression:
        return self._styled(fields.any("json_schema"), fields, "qwen_xml", self.options)

    def _styled(self, schema: Any, fields: Fields, style: str, options: Options) -> Expression:
        from dotllm.languages.structural_tag import markup
        from dotllm.languages.structural_tag.styles import STYLES, styled_expression

        if options.excludes and style in markup.STYLES:
            raise Unsupported(f"'excludes' in the style {style!r}", location=fields.at("excludes"), keyword="excludes")
        try:
            if style in markup.STYLES:
                return markup.markup_expression(schema, self.grammar, options, style, self._text)
            if style in STYLES:
                return styled_expression(schema, self.grammar, options, STYLES[style], self._text)
        except SpecError as error:
            raise error.at(fields.at("json_schema").around(error.location)) from error
        raise Unsupported(f"the style {style!r}", location=fields.at("style"), keyword="style")

    def _format_grammar(self, fields: Fields, _: Ends) -> Expression:
        try:
            other = grammar_to_grammar(fields.string("grammar"), token_names=self.token_names)
        except SpecError as error:
            raise error.at(fields.at("grammar").around(error.location)) from error
        return self.grammar.include(other)

    def _format_regex(self, fields: Fields, _: Ends) -> Expression:
        try:
            return regex_to_expression(fields.string("pattern"), self.grammar, search=False)
        except SpecError as error:
            raise error.at(fields.at("pattern").around(error.location)) from error

    def _format_any_text(self, fields: Fields, ends: Ends) -> Expression:
        excluded = fields.strings("excludes")
        tokens, characters = fields.count("max_tokens", None), fields.count("max_chars", None)
        if tokens is not None and (excluded or any(isinstance(end, str) for end in ends)):
            raise Unsupported(
                "'max_tokens' together with an end string or 'excludes'",
                location=fields.at("max_tokens"),
                keyword="max_tokens",
            )
        if characters is not None and tokens is not None:
            raise Unsupported(
                "'max_tokens' together with 'max_chars'", location=fields.at("max_chars"), keyword="max_chars"
            )
        if characters is not None:
            from dotllm.languages.structural_tag.raw import some_characters

            # Special tokens are no characters, so a text with one in it does not occur anyway.
            plain = [text for text in (*excluded, *self._texts(ends)) if len(self._symbols(text)) == len(text)]
            return some_characters(self.grammar, characters, tuple(plain))
        if tokens is not None:
            stops = [end for end in ends if isinstance(end, int)]
            ordinary = self.grammar.tokens([*self.token_names.special.values(), *stops], exclude=True)
            return self.grammar.repeat(ordinary, 0, tokens)
        return self._free([], excluded, ends)

    def _format_token(self, fields: Fields, _: Ends) -> Expression:
        return self.grammar.tokens([self._token(fields.any("token"), fields.at("token"))])

    def _format_exclude_token(self, fields: Fields, _: Ends) -> Expression:
        return self.grammar.tokens(self._tokens(fields, "exclude_tokens"), exclude=True)

    def _format_any_tokens(self, fields: Fields, _: Ends) -> Expression:
        one = self.grammar.tokens(self._tokens(fields, "exclude_tokens"), exclude=True)
        return self.grammar.repeat(one, 0, fields.count("max_tokens", None))

    def _format_sequence(self, fields: Fields, ends: Ends) -> Expression:
        elements = fields.items("elements")
        return self.grammar.seq([self.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])

    def _format_or(self, fields: Fields, ends: Ends) -> Expression:
        elements = fields.items("elements")
        if not elements:
            raise InvalidSpec("'or' needs at least one element", location=fields.at("elements"), keyword="elements")
        return self.grammar.alt([self.format(e, fields.at("elements") / i, ends) for i, e in enumerate(elements)])

    def _format_optional(self, fields: Fields, ends: Ends) -> Expression:
        return self.grammar.optional(self.format(fields.any("content"), fields.at("content"), ends))

    def _format_plus(self, fields: Fields, ends: Ends) -> Expression:
        return self.grammar.repeat(self.format(fields.any("content"), fields.at("content"), ends), 1)

    def _format_star(self, fields: Fields, ends: Ends) -> Expression:
        return self.grammar.repeat(self.format(fields.any("content"), fields.at("content"), ends))

    def _format_repeat(self, fields: Fields, ends: Ends) -> Expression:
        low, high = fields.count("min"), fields.count("max", minimum=-1)
        if 0 <= high < low:
            raise InvalidSpec("'max' is below 'min'", location=fields.at("max"), keyword="max")
        body = self.format(fields.any("content"), fields.at("content"), ends)
        return self.grammar.repeat(body, low, None if high < 0 else high)

    # ---- tags

    def _format_tag(self, fields: Fields, _: Ends) -> Expression:
        begin = fields.any("begin")
        rest = self._tag_rest(fields)
        opening = self._text(begin) if isinstance(begin, str) else self._token_format(begin, fields.at("begin"))
        return self.grammar.seq([opening, rest])

    def _tag_rest(self, fields: Fields) -> Expression:
        """Content and end of a tag."""
        end = fields.any("end")
        content = fields.any("content")
        if isinstance(end, Mapping):
            token = self._token_of_format(end, fields.at("end"))
            inner = self.format(content, fields.at("content"), (token,))
            return self.grammar.seq([inner, self.grammar.tokens([token])])
        ends = [end] if isinstance(end, str) else end
        if not isinstance(ends, list) or not ends or not all(isinstance(text, str) for text in ends):
            raise InvalidSpec("'end' must be a string, strings, or a token", location=fields.at("end"), keyword="end")
        inner = self.format(content, fields.at("content"), tuple(text for text in ends if text))
        return self.grammar.seq([inner, self.grammar.alt([self._text(text) for text in ends])])

    def _tag_of(self, begin: str, content: Expression, ends: list[Expression]) -> Tag:
        tail = self.grammar.seq([content, self.grammar.alt(ends)])
        return Tag(begin, lambda n: self.grammar.seq([self._text(begin[n:]), tail]))

    def _tags(self, fields: Fields) -> list[Tag]:
        """The tags of a list, which must begin with strings."""
        tags = []
        for i, value in enumerate(fields.items("tags")):
            tag = Fields(value, fields.at("tags") / i)
            tag.any("type", None)
            begin, tail = tag.string("begin"), self._tag_rest(tag)
            tag.finish()
            tags.append(Tag(begin, lambda n, b=begin, t=tail: self.grammar.seq([self._text(b[n:]), t])))  # type: ignore[misc]
        if not tags:
            raise InvalidSpec("'tags' must not be empty", location=fields.at("tags"), keyword="tags")
        return tags

    def _format_triggered_tags(self, fields: Fields, ends: Ends) -> Expression:
        tags, triggers = self._tags(fields), fields.strings("triggers")
        return self._triggered(
            tags, triggers, fields.strings("excludes"), ends, fields.at("triggers"),
            at_least_one=fields.flag("at_least_one"), stop_after_first=fields.flag("stop_after_first"),
        )  # fmt: skip

    def _triggered(
        self, tags: list[Tag], triggers: list[str], excluded: list[str], ends: Ends, pointer: Pointer, *,
        at_least_one: bool, stop_after_first: bool,
    ) -> Expression:  # fmt: skip
        """Free text with tags behind their triggers; ``at_least_one``: it begins with a tag."""
        grammar = self.grammar
        if not triggers:
            raise InvalidSpec("'triggers' must not be empty", location=pointer, keyword="triggers")
        groups: dict[str, list[Tag]] = {trigger: [] for trigger in triggers}
        for tag in tags:
            matching = [trigger for trigger in groups if tag.begin.startswith(trigger)]
            if len(matching) != 1:
                what = "no trigger" if not matching else "more than one trigger"
                raise InvalidSpec(f"{what} is a prefix of the tag {tag.begin!r}", location=pointer, keyword="triggers")
            groups[matching[0]].append(tag)
        dispatch = [
            (trigger, grammar.alt([tag.rest(len(trigger)) for tag in group]))
            for trigger, group in groups.items()
            if group
        ]
        first = grammar.alt([grammar.seq([self._text(trigger), rest]) for trigger, rest in dispatch])
        if at_least_one and stop_after_first:
            return first
        text = self._free(dispatch, excluded, ends, loop=not stop_after_first)
        return grammar.seq([first, text]) if at_least_one else text

    def _format_token_triggered_tags(self, fields: Fields, _: Ends) -> Expression:
        grammar = self.grammar
        triggers = self._tokens(fields, "trigger_tokens")
        excluded = self._tokens(fields, "exclude_tokens")
        branches = []
        for i, value in enumerate(fields.items("tags")):
            tag = Fields(value, fields.at("tags") / i)
            tag.any("type", None)
            token = self._token_of_format(tag.any("begin"), tag.at("begin"))
            if token not in triggers:
                raise InvalidSpec("no trigger token begins this tag", location=tag.at("begin"), keyword="begin")
            branches.append(grammar.seq([grammar.tokens([token]), self._tag_rest(tag)]))
            tag.finish()
        first = grammar.alt(branches)
        at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
        if at_least_one and once:
            return first
        free = grammar.tokens([*triggers, *excluded], exclude=True)
        edges = [(0, free, 0), (0, first, 1 if once else 0)]
        text = grammar.network(2, 0, [0, 1], edges)
        return grammar.seq([first, text]) if at_least_one else text

    def _format_tags_with_separator(self, fields: Fields, _: Ends) -> Expression:
        grammar = self.grammar
        separator = self._text(fields.string("separator"))
        tags = [
            self.format({"type": "tag", **tag} if isinstance(tag, Mapping) else tag, fields.at("tags") / i, ())
            for i, tag in enumerate(fields.items("tags"))
        ]
        at_least_one, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
        one = grammar.alt(tags)
        rule = grammar.rule("tag")
        grammar.define(rule, one)
        one = grammar.call(rule)
        found = one if once else grammar.seq([one, grammar.repeat(grammar.seq([separator, one]))])
        return found if at_least_one else grammar.optional(found)

    def _format_dispatch(self, fields: Fields, ends: Ends) -> Expression:
        rules = []
        for i, rule in enumerate(fields.items("rules")):
            at = fields.at("rules") / i
            if not isinstance(rule, list | tuple) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
                raise InvalidSpec("a rule is a pattern and a format", location=at, keyword="rules")
            rules.append((rule[0], self.format(rule[1], at / 1, ends)))
        return self._free(rules, fields.strings("excludes"), ends, loop=fields.flag("loop", True))

    def _format_token_dispatch(self, fields: Fields, _: Ends) -> Expression:
        grammar = self.grammar
        branches, triggers = [], []
        for i, rule in enumerate(fields.items("rules")):
            at = fields.at("rules") / i
            if not isinstance(rule, list | tuple) or len(rule) != 2:
                raise InvalidSpec("a rule is a token and a format", location=at, keyword="rules")
            token = self._token(rule[0], at / 0)
            triggers.append(token)
            branches.append(grammar.seq([grammar.tokens([token]), self.format(rule[1], at / 1, ())]))
        free = grammar.tokens([*triggers, *self._tokens(fields, "exclude_tokens")], exclude=True)
        done = 0 if fields.flag("loop", True) else 1
        return grammar.network(2, 0, [0, 1], [(0, free, 0), *((0, branch, done) for branch in branches)])

    # ---- pieces

    def _free(
        self, rules: list[tuple[str, Expression]], excluded: list[str], ends: Ends, *, loop: bool = True
    ) -> Expression:
        """Free text with its dispatch rules, in which none of ``ends`` occurs: the first one ends the tag."""
        refuse_excluded((tag for tag, _ in rules), excluded)
        # (an end that overlaps itself, like a blank line, may begin with the last characters of the text)
        excluded = [*excluded, *self._texts(ends)]
        return tag_dispatch(
            self.grammar, [(self._symbols(tag), rest) for tag, rest in rules], [self._symbols(t) for t in excluded],
            loop=loop, special_tokens=self.token_names.special,
        )  # fmt: skip

    def _text(self, text: str) -> Expression:
        return literal(self.grammar, text, self.token_names.special)

    def _symbols(self, text: str) -> Symbols:
        return symbols(text, self.token_names.special)

    def _texts(self, ends: Ends) -> list[str]:
        """``ends`` as texts. A special token has none, and is in no free text anyway."""
        named = [name for name, token in self.token_names.added.items() if token in ends]
        return [*(end for end in ends if isinstance(end, str)), *named]

    def _token_of_format(self, value: Any, pointer: Pointer) -> int:
        fields = Fields(value, pointer)
        if fields.string("type", "token") != "token":
            raise InvalidSpec("a string or a token is expected here", location=pointer, keyword="type")
        token = self._token(fields.any("token"), fields.at("token"))
        fields.finish()
        return token

    def _token_format(self, value: Any, pointer: Pointer) -> Expression:
        return self.grammar.tokens([self._token_of_format(value, pointer)])

    def _token(self, value: Any, pointer: Pointer) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
        if isinstance(value, str):
            number = self.token_names.find(value)
            if number is None:
                raise InvalidSpec(
                    f"the tokenizer has no special or added token {value!r}", location=pointer, keyword="token"
                )
            return number
        raise InvalidSpec("a token is an id or a name", location=pointer, keyword="token")

    def _tokens(self, fields: Fields, name: str) -> list[int]:
        return [self._token(v, fields.at(name) / i) for i, v in enumerate(fields.items(name, []))]

    def _schema(self, schema: Any, pointer: Pointer, options: Options) -> Expression:
        """A schema as one rule, shared by all uses of an equal schema."""
        try:
            key = json.dumps([schema, options], sort_keys=False, default=str)
        except ValueError:  # Python writes integers of 4,300 digits
            raise BudgetExceeded(
                "a number of the schema has too many digits", location=pointer, keyword="number"
            ) from None
        found = self._schemas.get(key)
        if found is None:
            try:
                body = schema_expression(schema, self.grammar, options)
            except SpecError as error:
                raise error.at(pointer.around(error.location)) from error
            rule = self.grammar.rule("json")
            self.grammar.define(rule, body)
            found = self._schemas[key] = self.grammar.call(rule)
        return found
