"""Threads that help the caller of a batch for some hundred microseconds, and wait in between.

They live in a kernel, without the GIL, where they wait for a byte from a pipe. So neither calling them nor being done
takes a turn of the interpreter: a `ThreadPoolExecutor` costs its caller 20 µs a task and comes as much later, and two
threads that end together, as those that share work do, then wait for each other's GIL. Nobody is waited for who has not
come yet: the caller works too, and helpers that come too late find the board closed.

The *board* is an int64 array that all of them know, on which the caller writes what there is to do before it opens it.
Its first word is how many helpers are at it, plus CLOSED while it is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import numba as nb
import numpy as np

from dotllm.arrays import Int64
from dotllm.index.atomics import fetch_add, load, pause_us, write_byte
from dotllm.jit import kernel

I, L1 = nb.int64, nb.int64[::1]

CLOSED = 1 << 40
FIRST = 16  # words before what the caller writes: two cache lines
_BOARD = 128  # words
_LOOKS = 50_000  # for the last helper to leave: some 30 µs, about what it takes to wake a thread
_PAUSE_US = 50  # between later looks

_T = TypeVar("_T")


@kernel(nb.void(L1, L1))
def open_board(board: Int64, doors: Int64) -> None:
    """Let helpers come, and wake those behind ``doors`` (pipes)."""
    fetch_add(nb.int64(board.ctypes.data), -CLOSED)
    for i in range(doors.shape[0]):
        write_byte(doors[i])


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
        """``help_forever(board, number, pipe)``: a kernel that does what the board says whenever a byte comes through
        the pipe; number: 1, 2, …"""
        self._help_forever = help_forever
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # which has no threads but its own

    def _begin(self) -> None:
        self._taken = threading.Lock()
        self._board = new_board()
        self._doors = np.empty(0, np.int64)

    def work(self, helpers: int, part: Callable[[Int64, Int64], _T]) -> _T:
        """``part(board, doors)`` with so many helpers behind the doors, or with none if they are busy."""
        if helpers < 1 or not self._taken.acquire(blocking=False):
            return part(new_board(), _NO_DOORS)
        board = self._board
        try:
            while len(self._doors) < helpers:
                self._hire(board)
            return part(board, self._doors[:helpers])
        except BaseException:
            close_board(board)
            raise
        finally:
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
