"""Threads that help the caller of a batch for some hundred microseconds, and wait in between.

They live in a kernel, without the GIL, where they wait for a byte from a pipe. So neither calling them nor being done
takes a turn of the interpreter: a `ThreadPoolExecutor` costs its caller 20 µs a task and comes as much later, and two
threads that end together, as those that share work do, then wait for each other's GIL. Nobody is waited for who has not
come yet: the caller works too, and helpers that come too late find the board closed.

Still, to wake a thread takes its caller some 10 µs and comes as much later, several times that in a virtual machine.
So when jobs follow each other closely, as the chunks of a large batch do, helpers look at the board for some time
before they wait for a byte; when they do not, they wait at once, and cost nothing.

The *board* is an int64 array that all of them know, on which the caller writes what there is to do before it opens it.
Its first word is how many helpers are at it, plus CLOSED while it is closed.
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
_JOB = 8  # word of the board: how often it has been opened
_SOON = 9  # whether another job is likely to follow soon
_LOOKING = 10  # a bit for each helper who looks at the board
FIRST = 16  # words before what the caller writes: two cache lines
_BOARD = 128  # words
_LOOKS = 1500  # for the last helper to leave: some 30 µs, about what it takes to wake a thread
_PAUSE_US = 50  # between later looks
_LOOKS_FOR_MORE = 25_000  # for another job: some 500 µs
_SOON_NS = 500_000

_T = TypeVar("_T")


@kernel(nb.void(L1, L1))
def open_board(board: Int64, doors: Int64) -> None:
    """Let helpers come, and wake those behind ``doors`` (pipes) who are not looking."""
    word = nb.int64(board.ctypes.data)
    fetch_add(word, -CLOSED)
    fetch_add(word + 8 * _JOB, 1)
    looking = load(word + 8 * _LOOKING)
    for i in range(doors.shape[0]):
        if not (looking >> (i + 1)) & 1:
            write_byte(doors[i])


@kernel(I(L1, I, I, I))
def wait_for_job(board: Int64, me: int, pipe: int, last: int) -> int:
    """Helper ``me`` waits until there may be something to do. Returns the number of the job, which is the next ``last``
    (at first: 0), or -1 if something is wrong with the pipe."""
    word = nb.int64(board.ctypes.data)
    if load(word + 8 * _SOON) != 0:
        fetch_add(word + 8 * _LOOKING, 1 << me)
        looks = 0
        while load(word + 8 * _JOB) == last and looks < _LOOKS_FOR_MORE:
            looks += 1
            relax()
        fetch_add(word + 8 * _LOOKING, -(1 << me))
        found = load(word + 8 * _JOB)  # once more: from now on there will be a byte
        if found != last:
            return found
    if read_byte(pipe) != 1:
        return -1
    return load(word + 8 * _JOB)


@kernel(nb.boolean(L1))
def join(board: Int64) -> bool:
    """A helper comes; whether it may."""
    word = nb.int64(board.ctypes.data)
    if fetch_add(word, 1) & CLOSED:
        fetch_add(word, -1)
        return False
    return True


@kernel(nb.void(L1))
def leave(board: Int64) -> None:
    """A helper that has joined goes."""
    fetch_add(nb.int64(board.ctypes.data), -1)


@kernel(nb.void(L1))
def close_board(board: Int64) -> None:
    """Let nobody come any more, and wait until all have left."""
    word = nb.int64(board.ctypes.data)
    if not load(word) & CLOSED:
        fetch_add(word, CLOSED)
    looks = 0
    while load(word) != CLOSED:
        looks += 1
        relax()
        if looks > _LOOKS:
            pause_us(_PAUSE_US)


def new_board() -> Int64:
    """A closed one."""
    board = np.zeros(_BOARD, np.int64)
    board[0] = CLOSED
    return board


_NO_DOORS = np.empty(0, np.int64)


class Team:
    """The helpers of one kind of work in this process; one caller has them at a time, others work alone."""

    def __init__(self, help_forever: Callable[[Int64, int, int], None]) -> None:
        """``help_forever(board, number, pipe)``: a kernel that does what the board says whenever `wait_for_job` says
        so; number: 1, 2, …"""
        self._help_forever = help_forever
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # which has no threads but its own

    def _begin(self) -> None:
        self._taken = threading.Lock()
        self._board = new_board()
        self._doors = np.empty(0, np.int64)
        self._ended = 0

    def work(self, helpers: int, part: Callable[[Int64, Int64], _T]) -> _T:
        """``part(board, doors)`` with so many helpers behind the doors, or with none if they are busy."""
        if helpers < 1 or not self._taken.acquire(blocking=False):
            return part(new_board(), _NO_DOORS)
        board = self._board
        board[_SOON] = time.perf_counter_ns() - self._ended < _SOON_NS
        try:
            while len(self._doors) < helpers:
                self._hire(board)
            return part(board, self._doors[:helpers])
        except BaseException:
            close_board(board)
            raise
        finally:
            self._ended = time.perf_counter_ns()
            self._taken.release()

    def _hire(self, board: Int64) -> None:
        number = len(self._doors) + 1
        inside, door = os.pipe()
        os.set_blocking(door, False)
        about = (board, number, inside)
        threading.Thread(target=self._help, args=about, name=f"dotllm-masks-{number}", daemon=True).start()
        self._doors = np.append(self._doors, np.int64(door))

    def _help(self, board: Int64, number: int, inside: int) -> None:
        while True:
            try:
                return self._help_forever(board, number, inside)
            except Exception:  # no memory: the caller finds that not all is done
                leave(board)
