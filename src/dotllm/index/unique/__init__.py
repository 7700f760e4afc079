"""``uniqueItems`` over infinitely many values, and objects whose keys are counted: their guides remember the items and
keys of the text.

No pushdown automaton can compare an item with all earlier ones. The machine knows only where such an array or object
begins (`Nfa.unique_nodes`). From there a guide reads the text, keeps the items (or keys), and removes from the
machine's masks the tokens that would repeat one.

In files: `values` (equality of values and keys), `scanner` (JSON text, byte by byte), `conflicts` (can the unfinished
value still equal an earlier one?), `paths` (the machine's steps, cached; data of the vocabulary; a text read in several
ways), `masks` (can the value be completed? which tokens must be removed?), `plans` (limits), `guide`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.index.unique.guide import UniqueGuide

__all__ = ["UniqueGuide"]

__getattr__, __dir__ = exports(__name__, guide="UniqueGuide")
