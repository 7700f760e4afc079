"""What compilation needs from the engine and from heavy compilers. Tests put fakes here; nothing more is relied on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dotllm.compilation.specification import Specification


class CompiledIndex(Protocol):
    """The part of `dotllm.Index` that is used here."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that would be free if this index alone were gone."""

    @property
    def nearly_full(self) -> bool:
        """Whether new sequences had better use `renewed`."""

    def renewed(self) -> CompiledIndex:
        """One of the same specification that has found nothing yet."""

    def save(self, path: Path) -> None:
        """Write to ``path`` (not atomically; the caches see to that)."""

    def to_bytes(self) -> bytes:
        """What `save` writes."""

    def guide(self) -> Any:
        """A new sequence on this index."""


class Engine(NamedTuple):
    """The engine, as functions."""

    compile: Callable[[Specification, Any], CompiledIndex]
    """(specification, vocabulary) → index; raises `dotllm.errors.SpecError` for a refused specification."""
    load: Callable[[Path | bytes, Any], CompiledIndex]
    """(file or what it holds, vocabulary) → index; raises for what is damaged, foreign or newer."""
    shared_bytes: Callable[[Any], int]
    """Bytes that all indexes of a vocabulary share: its mask rows."""
    collect: Callable[[Any], Any]
    """Free the shared rows that no living index of a vocabulary knows any more (perhaps not before the next call)."""
    warmth: Callable[[CompiledIndex], int]
    """A number that grows as an index finds states and rows."""
    prepare: Callable[[], None] = lambda: None
    """Load what every compile needs. It may take a minute, once per machine, which is not the time of a compile."""


class HeavyCompiler(Protocol):
    """Compiles somewhere else than on a thread of this process (`process`, `remote`)."""

    @property
    def level(self) -> str:
        """The name of its results in metrics and logs."""

    @property
    def at_once(self) -> int:
        """How many compiles it does at a time; more calls of `compile` would wait for one of these to end."""

    def prepare(self) -> bool:
        """Whether it could begin at once; if not, it gets ready in the background."""

    def compile(self, specification: Specification, cancelled: threading.Event) -> CompiledIndex:
        """The index; ends early with `Cancelled` when ``cancelled`` is set."""

    def start_all(self) -> None:
        """Get ready for as many compiles as there may be at a time, and wait for that."""

    def has_idle(self) -> bool:
        """Whether `compile_soon` would begin at once; if not, more help may get ready in the background."""

    def compile_soon(
        self, specification: Specification, cancelled: threading.Event, patience: float
    ) -> CompiledIndex | None:
        """`compile` if that can begin soon on this host, else None: for specifications that are not heavy. Soon is
        before the compile that began last takes longer than ``patience`` seconds."""

    def close(self) -> None:
        """End what is still running."""
