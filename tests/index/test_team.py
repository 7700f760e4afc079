"""Helpers of a batch: they are asked when there is enough to do, not waited for when they do not come, and never let in
when the work is over."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import numba as nb
import numpy as np
import pytest

from dotllm.arrays import Int64
from dotllm.index.atomics import fetch_add, load
from dotllm.index.team import CLOSED, FIRST, Team, close_board, join, leave, new_board, open_board, wait_for_job

HERE, BY_HELPERS, OF, FAILED = range(FIRST, FIRST + 4)
NOTHING = 0


@nb.njit(nb.void(nb.int64[::1], nb.int64), nogil=True)
def take(board: Int64, count: int) -> None:
    """Take pieces of work until none is left, counting them in board[count]."""
    left = nb.int64(board.ctypes.data) + 8 * OF
    while fetch_add(left, -1) > 0:
        fetch_add(nb.int64(board.ctypes.data) + 8 * count, 1)


@nb.njit(nb.void(nb.int64[::1], nb.int64, nb.int64), nogil=True)
def help_forever(board: Int64, me: int, pipe: int) -> None:
    job = 0
    while True:
        job = wait_for_job(board, me, pipe, job)
        if job >= 0 and join(board):
            take(board, BY_HELPERS)
            leave(board)


@nb.njit(nb.void(nb.int64[::1], nb.int64, nb.int64), nogil=True)
def fail_once(board: Int64, me: int, pipe: int) -> None:
    job = 0
    while True:
        job = wait_for_job(board, me, pipe, job)
        if job >= 0 and join(board):
            if fetch_add(nb.int64(board.ctypes.data) + 8 * FAILED, 1) == 0:
                raise MemoryError
            take(board, BY_HELPERS)
            leave(board)


@nb.njit(nb.void(nb.int64[::1], nb.int64[::1], nb.int64, nb.int64), nogil=True)
def share(board: Int64, doors: Int64, pieces: int, awaited: int) -> None:
    """``pieces`` of work; the caller does nothing while there are helpers and they have not done what is ``awaited``, a
    word of the board (or NOTHING)."""
    word = nb.int64(board.ctypes.data)
    board[OF], board[HERE], board[BY_HELPERS] = pieces, 0, 0
    open_board(board, doors)
    while awaited != NOTHING and doors.shape[0] > 0 and load(word + 8 * awaited) == 0:
        pass
    take(board, HERE)
    close_board(board)


def call(pieces: int, awaited: int = NOTHING) -> Callable[[Int64, Int64], tuple[int, int]]:
    def part(board: Int64, doors: Int64) -> tuple[int, int]:
        share(board, doors, pieces, awaited)
        return int(board[HERE]), int(board[BY_HELPERS])

    return part


@pytest.fixture
def team() -> Iterator[Team]:
    yield Team(help_forever)


def test_helpers_take_part_and_all_is_done_once(team: Team) -> None:
    for helpers in (1, 3):
        for _ in range(50):
            here, by_helpers = team.work(helpers, call(10_000, awaited=BY_HELPERS))
            assert by_helpers > 0 and here + by_helpers == 10_000


def test_helpers_come_whether_they_look_or_wait_for_a_byte(team: Team) -> None:
    """Jobs that follow each other at once, and after about as long as helpers look at the board for the next."""
    pauses = random.Random(0)
    for i in range(600):
        if i % 2:
            time.sleep(pauses.uniform(0, 0.001))
        here, by_helpers = team.work(1, call(500, awaited=BY_HELPERS))
        assert by_helpers > 0 and here + by_helpers == 500


def test_nothing_is_waited_for_that_does_not_come(team: Team) -> None:
    for _ in range(200):
        here, by_helpers = team.work(2, call(3))
        assert here + by_helpers == 3
    assert team.work(0, call(3)) == (3, 0)


def test_a_closed_board_lets_nobody_in() -> None:
    board = new_board()
    assert not join(board)
    open_board(board, np.empty(0, np.int64))
    assert join(board) and board[0] == 1
    leave(board)
    close_board(board)
    assert not join(board) and board[0] == CLOSED


def test_who_finds_the_team_busy_works_alone(team: Team) -> None:
    def part(board: Int64, doors: Int64) -> tuple[int, int]:
        assert len(doors) == 1
        found: list[tuple[int, int]] = []
        other = threading.Thread(target=lambda: found.append(team.work(1, call(5))))
        other.start()
        other.join()
        return found[0]

    assert team.work(1, part) == (5, 0)


def test_an_error_of_the_caller_leaves_the_team_ready(team: Team) -> None:
    def part(board: Int64, doors: Int64) -> None:
        open_board(board, doors)
        raise KeyError

    with pytest.raises(KeyError):
        team.work(1, part)
    assert sum(team.work(1, call(1000, awaited=BY_HELPERS))) == 1000


def test_a_helper_that_fails_is_not_waited_for_and_helps_again() -> None:
    team = Team(fail_once)
    assert sum(team.work(1, call(1000, awaited=FAILED))) == 1000
    here, by_helpers = team.work(1, call(1000, awaited=BY_HELPERS))
    assert by_helpers > 0 and here + by_helpers == 1000


def test_a_forked_process_hires_its_own(team: Team) -> None:
    team.work(1, call(100, awaited=BY_HELPERS))
    child = os.fork()
    if child == 0:
        here, by_helpers = team.work(1, call(100, awaited=BY_HELPERS))
        os._exit(0 if by_helpers > 0 and here + by_helpers == 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
