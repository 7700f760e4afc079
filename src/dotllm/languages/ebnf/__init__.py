"""GBNF, the grammars of llama.cpp, and xgrammar's EBNF, which extends it (docs/grammars.md)."""

from dotllm.languages.ebnf.compiler import ebnf_to_grammar

__all__ = ["ebnf_to_grammar"]
