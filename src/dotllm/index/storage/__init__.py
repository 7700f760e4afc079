"""An index as a file.

In files: `file` (the format, writing and reading), `verify_nfa` and `verify_arena` (can the numbers read be used as
places in memory?), `restore` (the arena made of them).
"""

from dotllm.index.storage.file import dump, load, row_numbers, write

__all__ = ["dump", "load", "row_numbers", "write"]
