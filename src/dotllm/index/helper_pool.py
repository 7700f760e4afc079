"""Threads that help the caller of a batch for some hundred microseconds, and wait in between.

Helpers stay in a kernel, without the GIL, and wait there for a byte from a pipe. So neither the call of a helper nor
its end needs the interpreter. A task of a `ThreadPoolExecutor` costs its caller 20 µs and begins 20 µs later, and two
threads that end together wait for each other's GIL. The caller works, too, and waits only for helpers that have begun:
a helper that comes later finds the job closed.

To wake a thread still costs its caller some 10 µs, and the thread begins 10 µs later (several times that in a virtual
machine). So if jobs follow each other closely, as the chunks of a large batch do, helpers spin on the job for some time
before they wait for a byte. Otherwise they wait at once, and cost nothing.

The *job* is an int64 array that all of them share. The caller writes into it what is to be done, then opens it. Its
first word counts the helpers that are at work on it, plus CLOSED while it is closed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numba as nb
import numpy as np

from dotllm.arrays import Int64
from dotllm.index.atomics import fetch_add, load, pause_us, read_byte, relax, write_byte
from dotllm.jit import kernel

I, L1 = nb.int64, nb.int64[::1]

CLOSED = 1 << 40
_NUMBER = 8  # word of the job: how often it has been opened
_SOON = 9  # whether another job is likely to follow soon
_SPINNING = 10  # a bit for each helper that spins
CONTENT = 16  # words before what the caller writes: two cache lines
_JOB_WORDS = 128  # words
_CLOSE_SPINS = 1500  # for the last helper to leave: some 30 µs, about what it takes to wake a thread
_PAUSE_US = 50  # between later spins
_WAIT_SPINS = 25_000  # for another job: some 500 µs
_SOON_NS = 500_000

_T = TypeVar("_T")


@kernel(nb.void(L1, L1))
def open_job(job: Int64, wake_fds: Int64) -> None:
    """Let helpers come, and wake through ``wake_fds`` (pipes) those that do not spin."""
    address = nb.int64(job.ctypes.data)
    fetch_add(address, -CLOSED)
    fetch_add(address + 8 * _NUMBER, 1)
    spinning = load(address + 8 * _SPINNING)
    for i in range(wake_fds.shape[0]):
        if not (spinning >> (i + 1)) & 1:
            write_byte(wake_fds[i])


@kernel(I(L1, I, I, I))
def wait_for_job(job: Int64, me: int, pipe: int, last: int) -> int:
    """Helper ``me`` waits until there may be something to do. Returns the number of the job, which is the next ``last``
    (at first: 0), or -1 if something is wrong with the pipe."""
    address = nb.int64(job.ctypes.data)
    if load(address + 8 * _SOON) != 0:
        fetch_add(address + 8 * _SPINNING, 1 << me)
        spins = 0
        while load(address + 8 * _NUMBER) == last and spins < _WAIT_SPINS:
            spins += 1
            relax()
        fetch_add(address + 8 * _SPINNING, -(1 << me))
        found = load(address + 8 * _NUMBER)  # once more: from now on there will be a byte
        if found != last:
            return found
    if read_byte(pipe) != 1:
        return -1
    return load(address + 8 * _NUMBER)


@kernel(nb.boolean(L1))
def enter_job(job: Int64) -> bool:
    """A helper comes; whether it may."""
    address = nb.int64(job.ctypes.data)
    if fetch_add(address, 1) & CLOSED:
        fetch_add(address, -1)
        return False
    return True


@kernel(nb.void(L1))
def exit_job(job: Int64) -> None:
    """A helper that has joined goes."""
    fetch_add(nb.int64(job.ctypes.data), -1)


@kernel(nb.void(L1))
def close_job(job: Int64) -> None:
    """Let nobody come any more, and wait until all have left."""
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
    """A closed one."""
    job = np.zeros(_JOB_WORDS, np.int64)
    job[0] = CLOSED
    return job


NO_HELPERS = np.empty(0, np.int64)


class HelperPool:
    """The helpers of one kind of work in this process; one caller has them at a time, others work alone."""

    def __init__(self, help_forever: Callable[[Int64, int, int], None]) -> None:
        """``help_forever(job, number, pipe)``: a kernel that does what the job says whenever `wait_for_job` says
        so; number: 1, 2, …"""
        self._help_forever = help_forever
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # which has no threads but its own

    def _begin(self) -> None:
        self._taken = threading.Lock()
        self._job = new_job()
        self._wake_fds = np.empty(0, np.int64)
        self._ended = 0

    def work(self, helpers: int, part: Callable[[Int64, Int64], _T]) -> _T:
        """``part(job, wake_fds)`` with the pipes of so many helpers, or of none if they are busy."""
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
            except Exception:  # no memory: the caller finds that not all is done
                exit_job(job)
