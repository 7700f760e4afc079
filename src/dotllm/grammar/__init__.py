"""Grammar: the one intermediate form between the languages users write and the machine that runs."""

from dotllm.grammar.grammar import Expression, Grammar, Kind, Rule

__all__ = ["Expression", "Grammar", "Kind", "Rule"]
