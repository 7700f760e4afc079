"""The compiler that all formats of a structural tag share: the grammar, the tokenizer's names, fixed text, tokens,
schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, InvalidSpecError, Pointer, SpecError, UnsupportedError
from dotllm.grammar import Expression, Grammar
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema import Options, schema_expression
from dotllm.languages.tag_dispatch import Symbols, literal, refuse_excluded, symbols, tag_dispatch
from dotllm.languages.token_names import TokenNames
from dotllm.suggestions import did_you_mean

# Reading the fields of a format: every mistake, including an unknown field, is an `InvalidSpecError` with its JSON
# Pointer.

T = TypeVar("T")
_MISSING = object()


class Fields:
    """One JSON object of the specification, read field by field; `finish` refuses the unread fields."""

    def __init__(self, value: Any, pointer: Pointer) -> None:
        if not isinstance(value, Mapping):
            raise InvalidSpecError(f"expected an object, not {_of_json(value)}", location=pointer)
        self._value = value
        self._read: set[str] = set()
        self.pointer = pointer

    def at(self, name: str) -> Pointer:
        """The JSON Pointer of a field."""
        return self.pointer / name

    def wrong(self, name: str, message: str, help: str = "") -> InvalidSpecError:
        """The refusal of the value of a field."""
        return InvalidSpecError(message, location=self.at(name), keyword=name, help=help)

    def has(self, name: str) -> bool:
        """Whether a field is present (null counts as absent)."""
        return self._value.get(name) is not None

    def any(self, name: str, default: Any = _MISSING) -> Any:
        """A field of any type. Raises InvalidSpecError if the field is missing, or is not Unicode text."""
        self._read.add(name)
        value = self._value.get(name)
        if value is None:
            if default is _MISSING:
                raise InvalidSpecError(f"the field {name!r} is missing", location=self.pointer, keyword=name)
            return default
        if isinstance(value, str):
            self.check_text(name, value, self.at(name))
        return value

    def check_text(self, name: str, text: str, pointer: Pointer) -> None:
        """Raise InvalidSpecError for a text of the field ``name`` that contains a lone surrogate."""
        if not is_unicode(text):
            wrong = f"{name!r} contains a lone surrogate, which no Unicode text contains"
            raise InvalidSpecError(wrong, location=pointer, keyword=name)

    def _of(self, name: str, kind: type[T], what: str, default: Any) -> T:
        value: T = self.any(name, default)
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise self.wrong(name, f"{name!r} must be {what}")
        return value

    def string(self, name: str, default: Any = _MISSING) -> str:
        """A string."""
        return self._of(name, str, "a string", default)

    def require_type(self, kind: str) -> None:
        """Raise InvalidSpecError if the field ``type`` is present and is not ``kind``."""
        if self.any("type", kind) != kind:
            raise self.wrong("type", f"'type' must be {kind!r}")

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        return self._of(name, bool, "true or false", default)

    def count(self, name: str, default: Any = _MISSING, minimum: int = 0) -> Any:
        """An integer of at least ``minimum``. Raises InvalidSpecError for any other value."""
        number = self._of(name, int, "an integer", default)
        if number is not default and not minimum <= number < 2**30:
            raise self.wrong(name, f"{name!r} is out of range")
        return number

    def items(self, name: str, default: Any = _MISSING) -> list[Any]:
        """A list."""
        return self._of(name, list, "a list", default)

    def nonempty_list(self, name: str) -> list[Any]:
        """A list. Raises InvalidSpecError if it is empty."""
        items = self.items(name)
        if not items:
            raise self.wrong(name, f"{name!r} must not be empty")
        return items

    def strings(self, name: str) -> list[str]:
        """A list of non-empty strings; empty if the field is absent. Raises InvalidSpecError for any other value."""
        texts = self.items(name, [])
        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise self.wrong(name, f"{name!r} must hold non-empty strings").at(self.at(name) / i)
            self.check_text(name, text, self.at(name) / i)
        return texts

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects of a non-empty list."""
        return (Fields(value, self.at(name) / i) for i, value in enumerate(self.nonempty_list(name)))

    def finish(self) -> None:
        """Raise InvalidSpecError for unread fields: ignoring a field could mean not enforcing it."""
        for name in self._value:
            if name not in self._read and self._value[name] is not None:
                error = self.wrong(str(name), f"unknown field {name!r}", did_you_mean(str(name), self._read))
                raise error.replaced(code="unknown_field")


def _of_json(value: Any) -> str:
    """JSON's name for a value that is not an object."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "a string" if isinstance(value, str) else "a list" if isinstance(value, list) else "a number"


@contextmanager
def located(pointer: Pointer) -> Iterator[None]:
    """A context that gives refusals of the text or schema at ``pointer`` their place in the whole.

    Raises:
        SpecError: the refusal raised within, with its place.
    """
    try:
        yield
    except SpecError as error:
        raise error.at(pointer.around(error.location)) from error


MAX_NESTING = 64

Ends = tuple[str | int, ...]  # texts and tokens

Format = Callable[["TagCompiler", Fields, Ends], Expression]
"""Makes an expression from the fields of a format and the ends of the enclosing tag."""


class TagCompiler:
    """Compiles the formats of one structural tag."""

    def __init__(
        self, grammar: Grammar, token_names: TokenNames, options: Options, formats: Mapping[str, Format]
    ) -> None:
        self.grammar = grammar
        self.token_names = token_names
        self.options = options
        self.formats = formats
        # The special tokens after which text may follow; generation stops at the others.
        self._inner = {name: token for name, token in token_names.special.items() if token not in token_names.ends}
        self.spelt: dict[Expression, Expression] = {}
        """For each end token at the end of a text, that token's name in ordinary tokens (`grammar.end_tokens`)."""
        self.depth = 0
        self._schemas: dict[str, Expression] = {}

    def format(self, value: Any, pointer: Pointer, ends: Ends) -> Expression:
        """One format. ``ends``: the texts and tokens that end the innermost enclosing tag; free text excludes them.

        Raises:
            UnsupportedError: the format does not exist.
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
            expression: Expression = method(self, fields, ends)
        except SpecError as error:
            if error.location is not None:
                raise
            raise error.at(pointer, error.keyword or kind) from None
        self.depth -= 1
        fields.finish()
        return expression

    def free(
        self, rules: list[tuple[str, Expression]], excluded: list[str], ends: Ends, *, loop: bool = True
    ) -> Expression:
        """Free text with its dispatch rules. It contains none of ``ends``, because the first of them ends the tag."""
        refuse_excluded((tag for tag, _ in rules), excluded)
        # (an end that overlaps itself, like a blank line, may begin with the last characters of the text)
        excluded = [*excluded, *self.texts(ends)]
        return tag_dispatch(
            self.grammar,
            [(self.symbols(tag), rest) for tag, rest in rules],
            [*map(self.symbols, excluded), *self.special_names([*(tag for tag, _ in rules), *excluded])],
            loop=loop, special_tokens=self._inner,
        )  # fmt: skip

    def special_names(self, texts: Iterable[str]) -> list[str]:
        """The names of the special tokens in ``texts``. Free text excludes them: a reader mistakes a name that is
        written in ordinary characters for the token."""
        return sorted({symbol for text in texts for symbol in self.symbols(text) if len(symbol) > 1})

    def text(self, text: str) -> Expression:
        """Fixed text, with special tokens matched by their ids (an end token only at its end, see `spelt`)."""
        *_, last = symbols(text, self.token_names.special) or [""]
        token = self.token_names.special.get(last)
        if token is None or token not in self.token_names.ends:
            return literal(self.grammar, text, self._inner)
        end = self.grammar.tokens([token])
        self.spelt[end] = self.grammar.literal(last)
        return self.grammar.seq([literal(self.grammar, text.removesuffix(last), self._inner), end])

    def symbols(self, text: str) -> Symbols:
        """The characters and special tokens of ``text``, a part of free text: there, end tokens are ordinary text."""
        return symbols(text, self._inner)

    def texts(self, ends: Ends) -> list[str]:
        """The texts of ``ends``, without special tokens: they have no text, and free text never contains them."""
        named = [name for name, token in self.token_names.added.items() if token in ends]
        return [*(end for end in ends if isinstance(end, str)), *named]

    def token_of_format(self, tag: Fields, name: str, what: str = "a token") -> int:
        """The id in a ``token`` format, the field ``name`` of a tag; ``what`` it may be. Raises InvalidSpecError."""
        value, pointer = tag.any(name), tag.at(name)
        if not isinstance(value, Mapping) or value.get("type", "token") != "token":
            help = 'a token is {"type": "token", "token": …}'
            raise tag.wrong(name, f"{name!r} must be {what}", help)
        fields = Fields(value, pointer)
        fields.any("type", None)
        token = self.token(fields.any("token"), fields.at("token"))
        fields.finish()
        return token

    def token(self, value: Any, pointer: Pointer) -> int:
        """The id of a token, given by id or name. Raises InvalidSpecError if the tokenizer has no such token."""
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
        wrong = "expected a token: its name, or its id of at least 0"
        raise InvalidSpecError(wrong, location=pointer, keyword="token")

    def tokens(self, fields: Fields, name: str) -> list[int]:
        """The ids of the field ``name``, a list of tokens; empty if the field is absent."""
        return [self.token(v, fields.at(name) / i) for i, v in enumerate(fields.items(name, []))]

    def excluded_tokens(self, fields: Fields, ends: Ends) -> list[int]:
        """The tokens that free tokens exclude: those of the field, and the tokens that end the enclosing tag."""
        return [*self.tokens(fields, "exclude_tokens"), *(end for end in ends if isinstance(end, int))]

    def schema(self, schema: Any, pointer: Pointer, options: Options) -> Expression:
        """A schema as one rule, shared by all uses of an equal schema. Raises SpecError if the schema is refused."""
        try:
            key = json.dumps([schema, options], sort_keys=False, default=str)
        except (TypeError, ValueError):  # not JSON (keys, cycles), or an integer of more than 4,300 digits
            key = f"the schema at {pointer}"
        call = self._schemas.get(key)
        if call is None:
            with located(pointer):
                body = schema_expression(schema, self.grammar, options)
            rule = self.grammar.rule("json")
            self.grammar.define(rule, body)
            call = self._schemas[key] = self.grammar.call(rule)
        return call
