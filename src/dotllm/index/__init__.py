"""Index = Grammar × Vocabulary; Guide = one sequence walking it."""

from dotllm.index.guide import Guide
from dotllm.index.index import Index

__all__ = ["Guide", "Index"]
