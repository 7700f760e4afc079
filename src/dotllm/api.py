"""The public `Index`: `GrammarIndex` with a constructor for each language.

It is above both `languages` and `index`, so that neither of them knows the other: a language makes a `Grammar`, and an
index takes one. A constructor imports its language when it is called, because loading all languages takes a second.
"""

from __future__ import annotations

import sys
import typing
import warnings
from collections.abc import Sequence
from dataclasses import is_dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from dotllm.automata.machine.arena import DEFAULT_LIMIT
from dotllm.errors import InvalidSpecError, SpecWarning, shown
from dotllm.index.index import GrammarIndex
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Self

    from dotllm.grammar import Grammar
    from dotllm.languages.cfg import Dialect
    from dotllm.languages.json_schema.options import AdditionalProperties, NumberDigits, Order, Whitespace
    from dotllm.languages.regex.parser import Dialect as RegexDialect
    from dotllm.languages.token_names import TokenNames


_MOST_WARNINGS = 8  # of one schema; `dotllm check` names all


class Index(GrammarIndex):
    """A specification compiled for a vocabulary; any number of sequences walk it, each with its own `guide`.

    The ``from_…`` constructors (or `load`) make it, and raise `InvalidSpecError`, `UnsupportedError` or
    `BudgetExceededError`, all of them ValueErrors that say what is wrong and where. An index grows as sequences reach
    new states; `save` keeps everything found. Thread-safe.
    """

    @classmethod
    def from_grammar_object(cls, grammar: Grammar, vocabulary: Vocabulary, *, limit: int = DEFAULT_LIMIT) -> Self:
        """The texts of a `Grammar`, which a language makes. ``limit``: 32-bit words that the automaton may grow to.

        Raises:
            TypeError: ``vocabulary`` is something else, such as a tokenizer.
        """
        return super().from_grammar_object(grammar, _required(vocabulary), limit=limit)

    @classmethod
    def from_regex(
        cls, pattern: str, vocabulary: Vocabulary, *, search: bool = False, dialect: RegexDialect = "python"
    ) -> Self:
        """Texts that match the whole ``pattern`` (docs/regex.md).

        ``search=True``: a match anywhere in the text suffices; ``dialect``: "python", or "ecma" as in JSON Schema.
        """
        from dotllm.languages.regex import regex_to_grammar

        return cls.from_grammar_object(regex_to_grammar(pattern, search=search, dialect=dialect), vocabulary)

    @classmethod
    def from_choice(cls, choices: Sequence[str] | Any, vocabulary: Vocabulary) -> Self:
        """Exactly one of ``choices``: a list of strings, a ``Literal``, or the class of an ``Enum``."""
        from dotllm.languages.choice import choice_to_grammar

        return cls.from_grammar_object(choice_to_grammar(choices_of(choices)), vocabulary)

    @classmethod
    def from_json_schema(
        cls,
        schema: Any,
        vocabulary: Vocabulary,
        *,
        property_order: Order = "declared",
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
        additional_properties: AdditionalProperties = "closed",
        default_dialect: str = "2020-12",
        whitespace: Whitespace = "formatted",
        number_digits: NumberDigits = "bounded",
        source: str | None = None,
    ) -> Self:
        """JSON texts that are valid under ``schema`` (docs/json-schema.md): a dict, a bool, JSON text, or a Pydantic
        model (its class) or ``TypeAdapter``.

        ``property_order``: keys in the "declared" or in "any" order;
        ``whitespace``: between JSON tokens what formatters write ("formatted"), or "any";
        ``any_whitespace=False``: no white space; ``whitespace_pattern``: a regular expression for white space;
        ``additional_properties``: an object that lists its properties has no others unless the schema says so
        ("closed"), or may have others ("open"); False: vLLM's ``disable_additional_properties``;
        ``number_digits``: numbers "bounded" to what all readers take (64 characters, or as many as the schema needs),
        or "any"; ``source``: a text from which strings and numbers are taken, if it has any that the schema allows
        (docs/answer-quality.md); ``default_dialect``: of schemas without ``$schema`` ("2020-12", "7", …).
        """
        from dotllm.languages.json_schema.build import json_schema_to_grammar, parse

        schema = schema_of(schema)
        if isinstance(schema, str):
            schema = parse(schema)
        grammar = json_schema_to_grammar(
            schema,
            order=property_order,
            any_whitespace=any_whitespace,
            whitespace_pattern=whitespace_pattern,
            additional_properties=additional_properties,
            default_dialect=default_dialect,
            whitespace=whitespace,
            number_digits=number_digits,
            source=source,
        )
        if grammar.may_warn:
            _warn_of(schema, default_dialect)
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_json_object(
        cls,
        vocabulary: Vocabulary,
        *,
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
        whitespace: Whitespace = "formatted",
        number_digits: NumberDigits = "bounded",
    ) -> Self:
        """Any JSON object; options as in `from_json_schema`."""
        from dotllm.languages.json_schema import json_object_to_grammar

        grammar = json_object_to_grammar(
            any_whitespace=any_whitespace,
            whitespace_pattern=whitespace_pattern,
            whitespace=whitespace,
            number_digits=number_digits,
        )
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_grammar(cls, text: str, vocabulary: Vocabulary, dialect: Dialect = "auto") -> Self:
        """Texts of a context-free grammar in Lark or EBNF notation (docs/grammars.md). "auto" tells the two apart by
        the way in which rules are defined."""
        from dotllm.languages.cfg import grammar_to_grammar

        grammar = grammar_to_grammar(text, dialect=dialect, token_names=_token_names(vocabulary))
        level = _level_of_caller()
        for place, message in grammar.warnings.items():
            warnings.warn(f"{message} (at {place})", SpecWarning, stacklevel=level)
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_structural_tag(
        cls,
        spec: Any,
        vocabulary: Vocabulary,
        *,
        property_order: Order = "declared",
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
        additional_properties: AdditionalProperties = "closed",
        whitespace: Whitespace = "formatted",
        number_digits: NumberDigits = "bounded",
        source: str | None = None,
    ) -> Self:
        """Texts of a structural tag (a dict or JSON text), in either request form (docs/structural-tags.md); options as
        in `from_json_schema`."""
        from dotllm.languages.json_schema import Options
        from dotllm.languages.structural_tag.build import structural_tag_to_grammar

        options = Options(
            any_whitespace,
            whitespace_pattern,
            property_order,
            additional_properties,
            whitespace=whitespace,
            number_digits=number_digits,
            source=source,
        )
        grammar = structural_tag_to_grammar(spec, token_names=_token_names(vocabulary), options=options)
        return cls.from_grammar_object(grammar, vocabulary)


def schema_of(value: Any) -> Any:
    """The JSON Schema of a Pydantic model's class or of a ``TypeAdapter``; any other value is returned unchanged.

    Raises:
        InvalidSpecError: the value is another type of Python, or an instance of a dataclass.
    """
    if isinstance(value, (dict, bool, str)):
        return value
    for method in ("model_json_schema", "json_schema"):
        make = getattr(value, method, None)
        if callable(make):
            return make()
    if isinstance(value, type) or typing.get_origin(value) is not None or is_dataclass(value):
        kind = "type" if isinstance(value, type) or not is_dataclass(value) else "dataclass"
        raise InvalidSpecError(
            f"{shown(value)} is a {kind} of Python, not a JSON Schema",
            keyword="schema",
            help="write pydantic.TypeAdapter(T).json_schema() for a type T",
        )
    return value


def choices_of(value: Any) -> Any:
    """The values of a ``Literal`` or of an ``Enum``'s class; any other value is returned unchanged."""
    if typing.get_origin(value) is typing.Literal:
        return [member.value if isinstance(member, Enum) else member for member in typing.get_args(value)]
    if isinstance(value, type) and issubclass(value, Enum):
        return [member.value for member in value]
    return value


def _warn_of(schema: Any, default_dialect: str) -> None:
    """Warn of whatever asserts nothing in ``schema``. The warning is about the line outside dotllm that led here."""
    from dotllm.languages.json_schema.reading.ineffective import ineffective_keywords

    for warning in islice(ineffective_keywords(schema, default_dialect), _MOST_WARNINGS):
        warnings.warn(f"{warning.message} (at {warning.pointer})", SpecWarning, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """The ``stacklevel`` with which the calling function's warning is about the line outside dotllm."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("dotllm."):
        frame, level = frame.f_back, level + 1
    return level


def _token_names(vocabulary: Vocabulary) -> TokenNames:
    from dotllm.languages.token_names import TokenNames

    return TokenNames.of(_required(vocabulary))


def _required(vocabulary: Vocabulary) -> Vocabulary:
    if not isinstance(vocabulary, Vocabulary):
        given = type(vocabulary).__name__
        raise TypeError(
            f"the vocabulary is a dotllm.Vocabulary, not {given!r}: make one with Vocabulary.from_tokenizer(tokenizer)"
        )
    return vocabulary
