"""What can go wrong in compilation other than the specification itself (`dotllm.errors`)."""

from __future__ import annotations

from dotllm.errors import BudgetExceeded


class CompilationError(RuntimeError):
    """A compile failed although nothing is known to be wrong with the specification (a bug, a dead worker)."""

    @classmethod
    def of(cls, error: BaseException) -> CompilationError:
        """An unexpected exception, with its name. Its text may hold the user's data: it is cut."""
        return cls(f"{type(error).__name__}: {error}"[:500])


class QueueFull(CompilationError):
    """Too many specifications wait to be compiled; this one was not taken. Try again later (HTTP 503 in spirit)."""


class PinnedMemoryFull(QueueFull):
    """Requests hold so many bytes of indexes that nothing more is compiled until some have ended."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"running requests hold more than {limit >> 20} MiB of indexes (--dotllm-max-pinned-bytes); try again later"
        )


class CompileTimeout(BudgetExceeded):
    """The compile took longer than ``compile_timeout`` and was killed (separate process) or given up (thread), where
    it ends itself soon."""

    @classmethod
    def beyond(cls, seconds: float) -> CompileTimeout:
        """For a limit of ``seconds``."""
        return cls(f"compiling took longer than {seconds:g} s (--dotllm-compile-timeout)", keyword="time")


class CompileMemory(BudgetExceeded):
    """The compile wanted more memory than ``compile_memory``."""

    @classmethod
    def beyond(cls, limit: int) -> CompileMemory:
        """For a limit of ``limit`` bytes."""
        return cls(f"compiling takes more than {limit >> 20} MiB of memory (--dotllm-compile-memory)", keyword="memory")
