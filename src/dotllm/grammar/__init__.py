"""Grammar: the only intermediate form between the languages that users write and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.grammar.grammar import Expression, Grammar, Rule
    from dotllm.grammar.kinds import ExpressionKind

__all__ = ["Expression", "ExpressionKind", "Grammar", "Rule"]

__getattr__, __dir__ = exports(__name__, grammar="Expression Grammar Rule", kinds="ExpressionKind")
