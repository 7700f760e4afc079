"""Index = Grammar × Vocabulary; Guide = one sequence walking it."""

from dotllm.index.batch import advance_guides, fill_masks, mask_rows
from dotllm.index.guide import Guide
from dotllm.index.index import GrammarIndex
from dotllm.index.limits import NO_LIMIT
from dotllm.index.unique import UniqueGuide
from dotllm.index.walkable import Walkable

__all__ = ["NO_LIMIT", "GrammarIndex", "Guide", "UniqueGuide", "Walkable", "advance_guides", "fill_masks", "mask_rows"]
