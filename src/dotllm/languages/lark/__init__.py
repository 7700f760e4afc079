"""Lark grammars, in the dialect of llguidance, which users of vLLM write (docs/grammars.md)."""
