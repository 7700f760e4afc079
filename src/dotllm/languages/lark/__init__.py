"""Lark grammars, in the dialect of llguidance, which users of vLLM write (docs/grammars.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.languages.lark.build import lark_to_grammar

__all__ = ["lark_to_grammar"]

__getattr__, __dir__ = exports(__name__, build="lark_to_grammar")
