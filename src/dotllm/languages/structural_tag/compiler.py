"""What all formats of a structural tag share: the grammar, the tokenizer's names, fixed text, tokens, schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, InvalidSpecError, Pointer, SpecError, UnsupportedError
from dotllm.grammar import Expression, Grammar
from dotllm.languages.dispatch import Symbols, literal, refuse_excluded, symbols, tag_dispatch
from dotllm.languages.json_schema import Options, schema_expression
from dotllm.languages.structural_tag.fields import Fields
from dotllm.languages.token_names import TokenNames
from dotllm.suggestions import did_you_mean

MAX_NESTING = 64

Ends = tuple[str | int, ...]  # texts and tokens

Format = Callable[["TagCompiler", Fields, Ends], Expression]
"""What makes an expression of the fields of a format, and of the ends of the tag around it."""


class TagCompiler:
    """Compiles the formats of one structural tag."""

    def __init__(
        self, grammar: Grammar, token_names: TokenNames, options: Options, formats: Mapping[str, Format]
    ) -> None:
        self.grammar = grammar
        self.token_names = token_names
        self.options = options
        self.formats = formats
        # Of the special tokens those that text may be in front of: generation stops at the others.
        self._inner = {name: token for name, token in token_names.special.items() if token not in token_names.ends}
        self.spelt: dict[Expression, Expression] = {}
        """Of each end token at the end of a text, that token's name in ordinary tokens (`grammar.end_tokens`)."""
        self.depth = 0
        self._schemas: dict[str, Expression] = {}

    def format(self, value: Any, pointer: Pointer, ends: Ends) -> Expression:
        """One format. ``ends``: the strings that end the innermost tag around it (free text does not hold them).

        Raises:
            UnsupportedError: there is no such format.
            BudgetExceededError: formats are nested too deeply.
            SpecError: the format is refused; ``location`` is its JSON Pointer.
        """
        cancellation.check()
        fields = Fields(value, pointer)
        kind = fields.string("type")
        method = self.formats.get(kind)
        if method is None:
            raise UnsupportedError(
                f"unknown format {kind!r}",
                location=fields.at("type"),
                keyword=kind,
                code="unknown_field",
                help=did_you_mean(kind, self.formats),
            )
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise BudgetExceededError(
                f"formats are nested deeper than {MAX_NESTING}", location=pointer, keyword="nesting", code="too_deep"
            )
        try:
            found: Expression = method(self, fields, ends)
        except SpecError as error:
            if error.location is not None:
                raise
            raise error.at(pointer, error.keyword or kind) from None
        self.depth -= 1
        fields.finish()
        return found

    def free(
        self, rules: list[tuple[str, Expression]], excluded: list[str], ends: Ends, *, loop: bool = True
    ) -> Expression:
        """Free text with its dispatch rules, in which none of ``ends`` occurs: the first one ends the tag."""
        refuse_excluded((tag for tag, _ in rules), excluded)
        # (an end that overlaps itself, like a blank line, may begin with the last characters of the text)
        excluded = [*excluded, *self.texts(ends)]
        return tag_dispatch(
            self.grammar, [(self.symbols(tag), rest) for tag, rest in rules], [self.symbols(t) for t in excluded],
            loop=loop, special_tokens=self._inner,
        )  # fmt: skip

    def text(self, text: str) -> Expression:
        """Fixed text, its special tokens matched by their ids (an end token only at its end, see `spelt`)."""
        *_, last = symbols(text, self.token_names.special) or [""]
        token = self.token_names.special.get(last)
        if token is None or token not in self.token_names.ends:
            return literal(self.grammar, text, self._inner)
        end = self.grammar.tokens([token])
        self.spelt[end] = self.grammar.literal(last)
        return self.grammar.seq([literal(self.grammar, text.removesuffix(last), self._inner), end])

    def symbols(self, text: str) -> Symbols:
        """The characters and special tokens of ``text``, which is in free text: so it has no end tokens."""
        return symbols(text, self._inner)

    def texts(self, ends: Ends) -> list[str]:
        """``ends`` as texts. A special token has none, and is in no free text anyway."""
        named = [name for name, token in self.token_names.added.items() if token in ends]
        return [*(end for end in ends if isinstance(end, str)), *named]

    def token_of_format(self, value: Any, pointer: Pointer) -> int:
        """The id in a format of type ``token``.

        Raises:
            InvalidSpecError: ``value`` is no such format.
        """
        fields = Fields(value, pointer)
        if fields.string("type", "token") != "token":
            raise InvalidSpecError("a string or a token is expected here", location=pointer, keyword="type")
        token = self.token(fields.any("token"), fields.at("token"))
        fields.finish()
        return token

    def token(self, value: Any, pointer: Pointer) -> int:
        """The id of a token, given by its id or its name.

        Raises:
            InvalidSpecError: the tokenizer has no such token.
        """
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
        if isinstance(value, str):
            number = self.token_names.find(value)
            if number is None:
                raise InvalidSpecError(
                    f"the tokenizer has no special or added token {value!r}",
                    location=pointer,
                    keyword="token",
                    code="unknown_token",
                    help=did_you_mean(value, [*self.token_names.special, *self.token_names.added]),
                )
            return number
        raise InvalidSpecError("a token is an id or a name", location=pointer, keyword="token")

    def tokens(self, fields: Fields, name: str) -> list[int]:
        """The ids of the field ``name``, a list of tokens; absent: none."""
        return [self.token(v, fields.at(name) / i) for i, v in enumerate(fields.items(name, []))]

    def schema(self, schema: Any, pointer: Pointer, options: Options) -> Expression:
        """A schema as one rule, shared by all uses of an equal schema.

        Raises:
            SpecError: the schema is refused.
            BudgetExceededError: the schema has a number of too many digits.
        """
        try:
            key = json.dumps([schema, options], sort_keys=False, default=str)
        except ValueError:  # Python writes integers of 4,300 digits
            raise BudgetExceededError(
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
