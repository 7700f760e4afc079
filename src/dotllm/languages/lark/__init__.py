"""Lark grammars, in the dialect of llguidance that users of vLLM write today (docs/grammars.md)."""

from dotllm.languages.lark.compiler import lark_to_grammar

__all__ = ["lark_to_grammar"]
