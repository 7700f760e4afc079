"""Index, as users know it: `GrammarIndex` with a constructor for each language.

It stands above both `languages` and `index`, so neither of them knows the other: a language gives a `Grammar`, and an
index takes one. A constructor imports its language when it is called, because loading all of them takes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dotllm.index.index import GrammarIndex
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Self

    from dotllm.languages.cfg import Dialect
    from dotllm.languages.json_schema.options import Order, Whitespace
    from dotllm.languages.regex.reading.scanner import Dialect as RegexDialect
    from dotllm.languages.token_names import TokenNames


class Index(GrammarIndex):
    """A specification compiled against a vocabulary; any number of sequences walk it, each with its `guide`.

    Made by the ``from_…`` constructors (or `load`), which raise `InvalidSpecError`, `UnsupportedError` or
    `BudgetExceededError`, all
    of them ValueErrors that say what and where. It grows as sequences visit new situations; `save` keeps what has
    been found. Thread-safe.
    """

    @classmethod
    def from_regex(
        cls, pattern: str, vocabulary: Vocabulary, *, search: bool = False, dialect: RegexDialect = "python"
    ) -> Self:
        """Texts that match the whole ``pattern`` (docs/regex.md).

        ``search=True``: it need only match somewhere; ``dialect``: "python", or "ecma" as in JSON Schema.
        """
        from dotllm.languages.regex import regex_to_grammar

        return cls.from_grammar_object(regex_to_grammar(pattern, search=search, dialect=dialect), vocabulary)

    @classmethod
    def from_choice(cls, choices: Sequence[str], vocabulary: Vocabulary) -> Self:
        """Exactly one of ``choices``."""
        from dotllm.languages.choice import choice_to_grammar

        return cls.from_grammar_object(choice_to_grammar(choices), vocabulary)

    @classmethod
    def from_json_schema(
        cls,
        schema: Any,
        vocabulary: Vocabulary,
        *,
        property_order: Order = "declared",
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
        additional_properties: bool | None = None,
        default_dialect: str = "2020-12",
        whitespace: Whitespace = "formatted",
        order: Order | None = None,
    ) -> Self:
        """JSON texts that are valid under ``schema`` (docs/json-schema.md): a dict, a bool, JSON text, or a Pydantic
        model (its class) or ``TypeAdapter``.

        ``property_order``: keys as "declared" or in "any" order (``order`` is its name of the last release);
        ``whitespace``: between tokens what formatters write, or "any";
        ``any_whitespace=False``: none; ``whitespace_pattern``: a regular expression for it;
        ``additional_properties=False``: objects have no properties but those that the schema names, unless it says so;
        ``default_dialect``: of schemas without ``$schema`` ("2020-12", "7", …).
        """
        from dotllm.languages.json_schema import json_schema_to_grammar

        grammar = json_schema_to_grammar(
            _schema_of(schema),
            order=order or property_order,
            any_whitespace=any_whitespace,
            whitespace_pattern=whitespace_pattern,
            additional_properties=additional_properties,
            default_dialect=default_dialect,
            whitespace=whitespace,
        )
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_json_object(
        cls,
        vocabulary: Vocabulary,
        *,
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
        whitespace: Whitespace = "formatted",
    ) -> Self:
        """Any JSON object; options as for JSON Schema."""
        from dotllm.languages.json_schema import json_object_to_grammar

        grammar = json_object_to_grammar(
            any_whitespace=any_whitespace, whitespace_pattern=whitespace_pattern, whitespace=whitespace
        )
        return cls.from_grammar_object(grammar, vocabulary)

    @classmethod
    def from_grammar(cls, text: str, vocabulary: Vocabulary, dialect: Dialect = "auto") -> Self:
        """Texts of a context-free grammar in Lark or EBNF notation (docs/grammars.md), which "auto" tells apart by how
        rules are defined."""
        from dotllm.languages.cfg import grammar_to_grammar

        grammar = grammar_to_grammar(text, dialect=dialect, token_names=_token_names(vocabulary))
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
        additional_properties: bool | None = None,
        whitespace: Whitespace = "formatted",
        order: Order | None = None,
    ) -> Self:
        """Texts of a structural tag (a dict or JSON text), in either request form (docs/structural-tags.md); options as
        for JSON Schema."""
        from dotllm.languages.json_schema import Options
        from dotllm.languages.structural_tag import structural_tag_to_grammar

        keys = order or property_order
        options = Options(any_whitespace, whitespace_pattern, keys, additional_properties, whitespace=whitespace)
        grammar = structural_tag_to_grammar(spec, token_names=_token_names(vocabulary), options=options)
        return cls.from_grammar_object(grammar, vocabulary)


def _schema_of(value: Any) -> Any:
    """The JSON Schema of a Pydantic model's class or of a ``TypeAdapter``; anything else is one already."""
    for method in ("model_json_schema", "json_schema"):
        make = getattr(value, method, None)
        if callable(make):
            return make()
    return value


def _token_names(vocabulary: Vocabulary) -> TokenNames:
    from dotllm.languages.token_names import TokenNames

    return TokenNames.of(vocabulary)
