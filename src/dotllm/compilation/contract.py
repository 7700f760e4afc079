"""What compilation needs from the engine and from other processes. Tests put fakes here; nothing more is relied on."""

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

    def tokens_to_finish(self) -> int:
        """How many tokens suffice for a whole text."""


class Engine(NamedTuple):
    """The engine, as functions."""

    compile: Callable[[Specification, Any], CompiledIndex]
    """(specification, vocabulary) → index; raises `dotllm.errors.SpecError` for a refused specification."""
    load: Callable[[Path | bytes, Any], CompiledIndex]
    """(file or its content, vocabulary) → index; raises for a damaged, foreign or newer one."""
    shared_bytes: Callable[[Any], int]
    """Bytes that all indexes of a vocabulary share: its mask rows."""
    collect: Callable[[Any], Any]
    """Free the shared rows that no living index of a vocabulary knows any more (perhaps not before the next call)."""
    warmth: Callable[[CompiledIndex], int]
    """A number that grows as an index finds states and rows."""
    prepare: Callable[[], None] = lambda: None
    """Load what every compile needs. It may take a minute, once per machine, which is not the time of a compile."""


class OffloadCompiler(Protocol):
    """Compiles elsewhere than on a thread of this process (`workers.process`, `workers.remote`)."""

    @property
    def level(self) -> str:
        """The name of its results in metrics and logs."""

    @property
    def at_once(self) -> int:
        """How many compiles it does at a time; a further call of `compile` waits for one of these to end."""

    @property
    def ready(self) -> bool:
        """Whether it has a process that can compile, idle or not."""

    @property
    def idle(self) -> bool:
        """Whether a process has nothing to do, so that `try_compile` begins at once."""

    def ensure_worker(self) -> None:
        """Start a process in the background if none is idle and there may be another one."""

    def start_all(self) -> None:
        """Start as many processes as there may be, and wait until they can compile."""

    def compile(self, specification: Specification, cancelled: threading.Event) -> CompiledIndex:
        """The index; raises `Cancelled` soon after ``cancelled`` is set."""

    def try_compile(
        self, specification: Specification, cancelled: threading.Event, patience_s: float
    ) -> CompiledIndex | None:
        """`compile` if that can begin soon on this host, else None. Soon is while compiles begin, the last of them at
        most ``patience_s`` seconds ago, and in a few times that. Starts a process as `ensure_worker` does."""

    def close(self) -> None:
        """End all processes."""
