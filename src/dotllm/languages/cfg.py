"""Context-free grammars in the two notations of vLLM's users (Lark and EBNF), told apart by how they define a rule."""

from __future__ import annotations

import re
from typing import Literal

from dotllm.errors import InvalidSpecError
from dotllm.grammar import Grammar
from dotllm.grammar.end_tokens import keep_last
from dotllm.languages.json_input import HALF
from dotllm.languages.source import Source
from dotllm.languages.token_names import TokenNames

Dialect = Literal["auto", "lark", "ebnf"]

# `name ::=` at the beginning of a line, with an optional rule option. vLLM looks for "::=" anywhere outside comments.
# This expression finds the same grammars, but does not mistake a "::=" inside a string for a definition.
_EBNF_RULE = re.compile(r"^[ \t]*[A-Za-z_][\w.-]*[ \t]*(?:\[[^\]\n]*\][ \t]*)?(?:\r?\n[ \t]*)?::=", re.MULTILINE)


def detect_dialect(text: str) -> Literal["lark", "ebnf"]:
    """The notation of a grammar."""
    return "ebnf" if _EBNF_RULE.search(text) else "lark"


def grammar_to_grammar(text: str, dialect: Dialect = "auto", token_names: TokenNames | None = None) -> Grammar:
    """The Grammar of a text in Lark (llguidance's dialect) or EBNF (GBNF, xgrammar) notation.

    ``token_names``: the tokenizer's; without them a grammar that names a token is refused. Raises InvalidSpecError,
    UnsupportedError or BudgetExceededError with line and column as ``location``. The result may be left-recursive:
    see `dotllm.grammar.transform.prepare`.

    Raises:
        InvalidSpecError: ``text`` is not a string, or not a grammar; ``location`` is a line and column.
        ValueError: there is no such dialect.
    """
    if not isinstance(text, str):
        raise InvalidSpecError(f"a grammar must be a string, not {type(text).__name__}", keyword="grammar")
    half = HALF.search(text)
    if half is not None:
        raise InvalidSpecError(
            f"{half[0]!a} is a lone surrogate, which no Unicode text contains",
            location=Source(text).location(half.start()),
            code="syntax",
        )
    if dialect == "auto":
        dialect = detect_dialect(text)
    if dialect == "ebnf":
        from dotllm.languages.ebnf import ebnf_to_grammar

        grammar = ebnf_to_grammar(text, token_names)
    elif dialect == "lark":
        from dotllm.languages.lark.build import lark_to_grammar

        grammar = lark_to_grammar(text, token_names)
    else:
        raise ValueError(f"dialect must be 'auto', 'lark' or 'ebnf', not {dialect!r}")
    if token_names is not None and grammar.token_sets:
        keep_last(grammar, token_names.named_ends)
    return grammar
