"""Regular expressions (ECMA-262 and Python `re` syntax) as grammars and as automata."""

from dotllm.languages.regex.api import regex_to_dfa, regex_to_expression, regex_to_grammar
from dotllm.languages.regex.reading.scanner import Dialect, Flags

__all__ = ["Dialect", "Flags", "regex_to_dfa", "regex_to_expression", "regex_to_grammar"]
