"""``uniqueItems`` over infinitely many values, and objects whose keys are counted: guides remember what their texts
hold.

No pushdown automaton can compare an item with all earlier ones. The machine knows only where such an array or object
begins (`Nfa.unique_nodes`). From there a guide reads the text, keeps the items (or keys), and removes from the
machine's masks the tokens that would repeat one.

In files: `values` (equality of values and keys), `scanner` (JSON text, byte by byte), `conflicts` (can the unfinished
value still equal an earlier one?), `paths` (the machine's steps, cached), `completions` (can the value be completed?),
`branches` (a text read in several ways at once), `tokens` (the vocabulary), `masks` (what is removed), `guide`.
"""

from dotllm.index.unique.guide import UniqueGuide

__all__ = ["UniqueGuide"]
