"""What can go wrong in compilation other than the specification itself (`dotllm.errors`)."""

from __future__ import annotations

from dotllm.errors import BudgetExceededError


class CompilationError(RuntimeError):
    """A compile failed although nothing is known to be wrong with the specification (a bug, a dead worker)."""

    passes = False
    """Whether the same specification may compile in a moment: such a failure is not remembered."""

    @classmethod
    def of(cls, error: BaseException) -> CompilationError:
        """An unexpected exception, with its name. Its text may hold the user's data: it is cut."""
        return cls(f"{type(error).__name__}: {error}"[:500])


class ProcessDied(CompilationError):
    """A compile process ended without a reply: it was killed (mostly by the kernel, for want of memory), or crashed."""

    passes = True

    def __init__(self, status: int, *, again: bool = False) -> None:
        """``again``: so did the one before it, with the same specification."""
        text = f"the compile process ended with status {status}"
        if again:
            text += (
                ", as the one before it did; try again later, and if the machine is short of memory, lower "
                "--dotllm-compile-memory or --dotllm-compile-processes"
            )
        super().__init__(text)
        self.status = status


class Unavailable(CompilationError):
    """There is nothing to compile with at the moment. Try again later (HTTP 503 in spirit)."""

    passes = True


class NoProcess(Unavailable):
    """No compile process is there, and none starts."""


class QueueFull(Unavailable):
    """Too many specifications wait to be compiled; this one was not taken."""


class PinnedMemoryFull(QueueFull):
    """Requests hold so many bytes of indexes that nothing more is compiled until some have ended."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"running requests hold more than {limit >> 20} MiB of indexes (--dotllm-max-pinned-bytes); try again later"
        )


class CompileTimeout(BudgetExceededError):
    """The compile took longer than ``compile_timeout`` and was killed (separate process) or given up (thread), where
    it ends itself soon."""

    @classmethod
    def beyond(cls, seconds: float) -> CompileTimeout:
        """For a limit of ``seconds``."""
        return cls(
            f"compiling took longer than {seconds:g} s (--dotllm-compile-timeout)", keyword="time", code="too_slow"
        )


class CompileMemory(BudgetExceededError):
    """The compile wanted more memory than ``compile_memory``."""

    @classmethod
    def beyond(cls, limit: int) -> CompileMemory:
        """For a limit of ``limit`` bytes."""
        return cls(f"compiling takes more than {limit >> 20} MiB of memory (--dotllm-compile-memory)", keyword="memory")
