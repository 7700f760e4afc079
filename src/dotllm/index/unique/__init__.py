"""``uniqueItems`` over infinitely many values, and objects whose keys are counted: guides remember what their texts
hold.

No pushdown automaton can compare an item with all earlier ones. The machine knows only where such an array or object
begins (`Nfa.unique_nodes`). From there a guide reads the text, keeps the items (or keys), and removes the tokens that
would repeat one from the machine's masks.

In files: `values` (equality of values and keys), `scanner` (JSON text, byte by byte), `conflicts` (can the unfinished
value still equal an earlier one?), `paths` (the machine's steps, cached), `completions` (can the value be completed?),
`branches` (a text read in several ways at once), `tokens` (the vocabulary), `masks` (the tokens to remove), `plans`
(limits), `guide`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.index.unique.guide import UniqueGuide

__all__ = ["UniqueGuide"]

__getattr__, __dir__ = exports(__name__, guide="UniqueGuide")
