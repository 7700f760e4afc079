"""Grammar: the one intermediate form between the languages users write and the machine that runs."""

from dotllm.grammar.grammar import Expression, Grammar, Rule
from dotllm.grammar.kinds import ExpressionKind

__all__ = ["Expression", "ExpressionKind", "Grammar", "Rule"]
