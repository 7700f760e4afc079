"""Threads that help the caller of a batch for a few hundred microseconds, and wait between batches.

Helpers stay in a kernel, without the GIL, and wait there for a byte from a pipe. So a helper begins and ends without
the interpreter. (A task of a `ThreadPoolExecutor` costs its caller 20 µs and begins 20 µs later, and two threads that
end together compete for the GIL.) The caller works, too, and waits only for helpers that have begun: a helper that
comes later finds the job closed.

Waking a thread still costs its caller some 10 µs, and the thread begins 10 µs later (several times that in a virtual
machine). So if jobs follow each other closely, as the chunks of a large batch do, helpers spin on the job for some time
before they wait for a byte. Otherwise they wait at once, and cost nothing.

The *job* is an int64 array that all threads share. The caller writes the task into it, then opens it. Its first word
counts the helpers that work on it, plus CLOSED while it is closed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dotllm.arrays import Int64
from dotllm.jit import kernel

# Operations that Numba lacks and that kernels need to run in several threads without the GIL: atomics, a hint to the
# processor, system calls.
#
# The atomic operations work on words of an int64 array. LLVM provides them on every machine (one instruction each), and
# the C library provides the three calls. A word is given by its address, like an arena (see `kernels`).

_ORDER = "seq_cst"


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def fetch_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to the word at ``address``. Returns its old value."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def exchange(typing_context: Any, address: Any, value: Any) -> Any:
    """Set the word at ``address``. Returns its old value."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """The word at ``address``; every write made before the word was set is visible afterwards."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(builder, arguments[0]), _ORDER, 8)

    return types.int64(types.int64), codegen


_HINTS = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}  # 1: yield


@intrinsic
def relax(typing_context: Any) -> Any:
    """Wait about ten nanoseconds in a polling loop, and leave the core to its other hyper-thread."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name, numbers = _HINTS.get(builder.module.triple.split("-")[0], (None, ()))
        if name is not None:
            number = ir.IntType(32)
            function_type = ir.FunctionType(ir.VoidType(), [number for _ in numbers])
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            builder.call(function, [number(n) for n in numbers])
        return context.get_dummy_value()

    return types.void(), codegen


def _one_byte(context: Any, builder: Any, descriptor: Any, name: str) -> Any:
    """``name(descriptor, a byte, 1)``."""
    size, number, byte = ir.IntType(64), ir.IntType(32), ir.IntType(8)
    function_type = ir.FunctionType(size, [number, byte.as_pointer(), size])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    buffer = cgutils.alloca_once_value(builder, byte(0))
    return builder.call(function, [builder.trunc(descriptor, number), buffer, size(1)])


@intrinsic
def read_byte(typing_context: Any, descriptor: Any) -> Any:
    """Wait for a byte from a pipe and take it. Returns 1, or something else if interrupted or if the pipe is closed."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _one_byte(context, builder, arguments[0], "read")

    return types.int64(types.int64), codegen


@intrinsic
def write_byte(typing_context: Any, descriptor: Any) -> Any:
    """Put a byte into a pipe. Returns 1 if the pipe took it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _one_byte(context, builder, arguments[0], "write")

    return types.int64(types.int64), codegen


@intrinsic
def pause_us(typing_context: Any, microseconds: Any) -> Any:
    """Sleep for some microseconds."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number]), "usleep")
        return builder.sext(builder.call(function, [builder.trunc(arguments[0], number)]), ir.IntType(64))

    return types.int64(types.int64), codegen


I, L1 = nb.int64, nb.int64[::1]

CLOSED = 1 << 40
_NUMBER = 8  # word of the job: the number of times it has been opened
_SOON = 9  # whether another job is likely to follow soon
_SPINNING = 10  # a bit for each helper that spins
CONTENT = 16  # the caller's words begin here, after two cache lines
FAULTS = 1000  # consecutive failures of a pipe after which its helper ends
_JOB_WORDS = 128  # words
_CLOSE_SPINS = 1500  # while the last helper leaves: some 30 µs, about as long as waking a thread takes
_PAUSE_US = 50  # between later spins
_WAIT_SPINS = 25_000  # while a helper waits for another job: some 500 µs
_SOON_NS = 500_000

_T = TypeVar("_T")


@kernel(nb.void(L1, L1))
def open_job(job: Int64, wake_fds: Int64) -> None:
    """Let helpers join. Wake those that are not spinning, through their pipes ``wake_fds``."""
    address = nb.int64(job.ctypes.data)
    fetch_add(address, -CLOSED)
    fetch_add(address + 8 * _NUMBER, 1)
    spinning = load(address + 8 * _SPINNING)
    for i in range(wake_fds.shape[0]):
        if not (spinning >> (i + 1)) & 1:
            write_byte(wake_fds[i])


@kernel(I(L1, I, I, I))
def wait_for_job(job: Int64, me: int, pipe: int, last: int) -> int:
    """Let helper ``me`` wait until there may be a job. Returns the number of the job, which is ``last`` in the
    next call (0 in the first), or -1 if the pipe has failed."""
    address = nb.int64(job.ctypes.data)
    if load(address + 8 * _SOON) != 0:
        fetch_add(address + 8 * _SPINNING, 1 << me)
        spins = 0
        while load(address + 8 * _NUMBER) == last and spins < _WAIT_SPINS:
            spins += 1
            relax()
        fetch_add(address + 8 * _SPINNING, -(1 << me))
        result = load(address + 8 * _NUMBER)  # once more: a job opened from now on sends a byte
        if result != last:
            return result
    if read_byte(pipe) != 1:
        return -1
    return load(address + 8 * _NUMBER)


@kernel(I(L1, I, I, I))
def next_job(job: Int64, me: int, pipe: int, last: int) -> int:
    """`wait_for_job`, which tries again if the pipe fails. Returns -1 after FAULTS failures in a row."""
    for _ in range(FAULTS):
        number = wait_for_job(job, me, pipe, last)
        if number >= 0:
            return number
    return -1


@kernel(nb.boolean(L1))
def enter_job(job: Int64) -> bool:
    """Let a helper join. Returns whether it may."""
    address = nb.int64(job.ctypes.data)
    if fetch_add(address, 1) & CLOSED:
        fetch_add(address, -1)
        return False
    return True


@kernel(nb.void(L1))
def exit_job(job: Int64) -> None:
    """Let a helper that has joined leave."""
    fetch_add(nb.int64(job.ctypes.data), -1)


@kernel(nb.void(L1))
def close_job(job: Int64) -> None:
    """Let no further helper join, and wait until all have left."""
    address = nb.int64(job.ctypes.data)
    if not load(address) & CLOSED:
        fetch_add(address, CLOSED)
    spins = 0
    while load(address) != CLOSED:
        spins += 1
        relax()
        if spins > _CLOSE_SPINS:
            pause_us(_PAUSE_US)


def new_job() -> Int64:
    """A new job, which is closed."""
    job = np.zeros(_JOB_WORDS, np.int64)
    job[0] = CLOSED
    return job


NO_HELPERS = np.empty(0, np.int64)


class HelperPool:
    """The helpers for one kind of work in this process. Only one caller at a time gets them; others work alone."""

    def __init__(self, help_forever: Callable[[Int64, int, int], None]) -> None:
        """``help_forever(job, number, pipe)``: a kernel that does the job whenever `wait_for_job` returns one; number:
        1, 2, …"""
        self._help_forever = help_forever
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # a child process has no helper threads

    def _begin(self) -> None:
        self._taken = threading.Lock()
        self._job = new_job()
        self._wake_fds = np.empty(0, np.int64)
        self._ended = 0

    def work(self, helpers: int, part: Callable[[Int64, Int64], _T]) -> _T:
        """Call ``part(job, wake_fds)`` with the pipes of this many helpers, or of none if they are busy."""
        if helpers < 1 or not self._taken.acquire(blocking=False):
            return part(new_job(), NO_HELPERS)
        job = self._job
        job[_SOON] = time.perf_counter_ns() - self._ended < _SOON_NS
        try:
            while len(self._wake_fds) < helpers:
                self._spawn(job)
            return part(job, self._wake_fds[:helpers])
        except BaseException:
            close_job(job)
            raise
        finally:
            self._ended = time.perf_counter_ns()
            self._taken.release()

    def begin(self, content: Int64) -> bool:
        """Let one helper work on ``content``, the job's words from CONTENT on, while the caller does something else.
        Returns whether it will; then call `end`."""
        if not self._taken.acquire(blocking=False):
            return False
        try:
            job = self._job
            if not len(self._wake_fds):
                self._spawn(job)
            job[CONTENT : CONTENT + len(content)] = content
            open_job(job, self._wake_fds[:1])
        except BaseException:
            self._taken.release()
            raise
        return True

    def end(self) -> Int64:
        """Wait for the helper, unless it has not begun (then it does nothing). Returns the job; read it at once."""
        close_job(self._job)
        self._taken.release()
        return self._job

    def _spawn(self, job: Int64) -> None:
        number = len(self._wake_fds) + 1
        pipe, wake_fd = os.pipe()
        os.set_blocking(wake_fd, False)
        arguments = (job, number, pipe)
        threading.Thread(target=self._help, args=arguments, name=f"dotllm-masks-{number}", daemon=True).start()
        self._wake_fds = np.append(self._wake_fds, np.int64(wake_fd))

    def _help(self, job: Int64, number: int, pipe: int) -> None:
        while True:
            try:
                return self._help_forever(job, number, pipe)
            except Exception:  # no memory: the caller sees that the work is not complete
                exit_job(job)
