"""An Index is a grammar compiled against a vocabulary; a Guide is one sequence of tokens on its way through an
Index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.index.batch import advance_guides, fill_masks, mask_rows
    from dotllm.index.guide import Guide
    from dotllm.index.index import GrammarIndex
    from dotllm.index.limits import NO_LIMIT
    from dotllm.index.unique import UniqueGuide
    from dotllm.index.walkable import Walkable

__all__ = ["NO_LIMIT", "GrammarIndex", "Guide", "UniqueGuide", "Walkable", "advance_guides", "fill_masks", "mask_rows"]

__getattr__, __dir__ = exports(
    __name__,
    batch="advance_guides fill_masks mask_rows",
    guide="Guide",
    index="GrammarIndex",
    limits="NO_LIMIT",
    unique="UniqueGuide",
    walkable="Walkable",
)
