"""Errors of compilation that are not the specification's fault (for those see `dotllm.errors`)."""

from __future__ import annotations

from dotllm.errors import BudgetExceededError

UNAVAILABLE = "unavailable"
"""The code of `Unavailable` in HTTP 503. (`dotllm.errors.CODES` has the codes of specifications.)"""


class CompilationError(RuntimeError):
    """A compile failed although nothing is known to be wrong with the specification (a bug, a dead worker)."""

    passes = False
    """Whether the same specification may compile a moment later; such a failure is not remembered."""

    @classmethod
    def of(cls, error: BaseException) -> CompilationError:
        """From an unexpected exception, with its name. Its text is cut, because it may hold the user's data."""
        text = f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, MemoryError):  # this process's: one in a compile process is `CompileMemory`
            return Unavailable(f"the server is short of memory: {text}")
        return cls(text)


class Unavailable(CompilationError):
    """Nothing can compile at the moment. Try again later (HTTP 503)."""

    passes = True


class ProcessDied(Unavailable):
    """A compile process ended without a reply: it was killed (mostly by the kernel, out of memory), or it crashed."""

    def __init__(self, status: int, *, again: bool = False) -> None:
        """``again``: the process before it died, too, on the same specification."""
        twice = ", as the one before it did: the specification was tried twice, and" if again else ":"
        super().__init__(
            f"the compile process ended with status {status}{twice} the request may be sent again; if the machine is "
            "short of memory, lower --dotllm-compile-memory or --dotllm-compile-processes"
        )
        self.status = status


class NoProcess(Unavailable):
    """There is no compile process, and none can be started."""


class QueueFull(Unavailable):
    """Too many specifications wait to be compiled; this one was not taken."""


class PinnedMemoryFull(QueueFull):
    """Requests hold more bytes of indexes than the limit, so nothing more is compiled until some have ended."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"running requests hold more than {limit >> 20} MiB of indexes (--dotllm-max-pinned-bytes); try again later"
        )


class CompileTimeout(BudgetExceededError):
    """The compile took longer than ``compile_timeout``. It was killed (in a process) or abandoned (on a thread, where
    it ends soon)."""

    @classmethod
    def beyond(cls, seconds: float) -> CompileTimeout:
        """For a limit of ``seconds``."""
        return cls(
            f"compiling took longer than {seconds:g} s (--dotllm-compile-timeout)", keyword="time", code="too_slow"
        )


class CompileMemory(BudgetExceededError):
    """The compile needed more memory than ``compile_memory``."""

    @classmethod
    def beyond(cls, limit: int) -> CompileMemory:
        """For a limit of ``limit`` bytes."""
        return cls(f"compiling takes more than {limit >> 20} MiB of memory (--dotllm-compile-memory)", keyword="memory")
