"""Regular expressions (ECMA-262 and Python `re` syntax) as grammars and as automata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.languages.regex.build import regex_to_bounded_dfas, regex_to_dfa, regex_to_expression, regex_to_grammar

__all__ = ["regex_to_bounded_dfas", "regex_to_dfa", "regex_to_expression", "regex_to_grammar"]

__getattr__, __dir__ = exports(
    __name__, build="regex_to_bounded_dfas regex_to_dfa regex_to_expression regex_to_grammar"
)
