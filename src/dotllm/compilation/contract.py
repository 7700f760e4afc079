"""What compilation needs from the engine, as protocols. Tests put a fake in their place; nothing more is relied on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from dotllm.compilation.specification import Specification


class CompiledIndex(Protocol):
    """The part of `dotllm.index.Index` that caches use."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that would be free if this index were gone."""

    def save(self, path: Path) -> None:
        """Write to ``path`` (not atomically; the caches see to that)."""

    def guide(self) -> Any:
        """A new sequence on this index."""


class TokenVocabulary(Protocol):
    """The part of `dotllm.vocabulary.Vocabulary` that caches use."""

    @property
    def fingerprint(self) -> str:
        """A hash of all tokens and special ids."""


Compile = Callable[[Specification, Any], Any]
"""(specification, vocabulary) → index; raises `dotllm.errors.SpecError` for a refused specification."""

Load = Callable[[Path, Any], Any]
"""(path, vocabulary) → index; raises ValueError or OSError for a file that is damaged, foreign or newer."""


class HeavyCompiler(Protocol):
    """Compiles somewhere else than on a thread of this process (`process`, `remote`)."""

    @property
    def level(self) -> str:
        """The name of its results in metrics and logs."""

    def compile(self, specification: Specification, abandoned: threading.Event) -> Any:
        """The index; ends early with `errors.Cancelled` when ``abandoned`` is set."""

    def close(self) -> None:
        """End what is still running."""
