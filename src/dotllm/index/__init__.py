"""Index = Grammar × Vocabulary; Guide = one sequence walking it."""

from dotllm.index.batch import advance_guides, fill_masks, mask_rows
from dotllm.index.guide import Guide
from dotllm.index.index import Index

__all__ = ["Guide", "Index", "advance_guides", "fill_masks", "mask_rows"]
