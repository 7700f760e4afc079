"""The directory of files that can always be made again: machine code, tables of vocabularies, indexes."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache_directory() -> Path:
    """``$DOTLLM_CACHE_DIR``, else ``dotllm`` in the user's cache directory (XDG Base Directory Specification)."""
    chosen = os.environ.get("DOTLLM_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dotllm"
