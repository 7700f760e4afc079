"""``uniqueItems`` over values that are not finitely many, and objects whose keys are counted: what a sequence has
already said, remembered by its guide.

No pushdown automaton can hold it, so the machine knows only where such an array or object begins
(`Grammar.unique_open`); from there a guide reads its text, keeps its items (its keys), and takes out of the machine's
masks what would repeat one.

In files: `values` (equal values, equal keys), `scanner` (JSON text, byte by byte), `likeness` (may what has begun still
become a value that was?), `paths` (the machine's steps, remembered), `room` (is there another way on?), `tokens` (of
the vocabulary), `masks` (what is taken out), `guide`.
"""

from dotllm.index.unique.guide import UniqueGuide

__all__ = ["UniqueGuide"]
