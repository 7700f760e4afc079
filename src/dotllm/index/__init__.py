"""Index = Grammar × Vocabulary; Guide = one sequence walking it."""

from dotllm.index.batch import advance_guides, fill_masks, mask_rows
from dotllm.index.guide import Guide
from dotllm.index.index import Index
from dotllm.index.unique import UniqueGuide  # here, so that no request waits for its machine code

__all__ = ["Guide", "Index", "UniqueGuide", "advance_guides", "fill_masks", "mask_rows"]
