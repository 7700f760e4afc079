"""Where files that can always be made again are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DOTLLM_CACHE_DIR"


def cache_directory() -> Path:
    """``$DOTLLM_CACHE_DIR``, else ``dotllm`` in the user's cache directory (XDG Base Directory Specification)."""
    own = os.environ.get(VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dotllm"
