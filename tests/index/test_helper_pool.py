"""Helpers of a batch: they are called when there is enough work, not waited for if they do not come, and not admitted
when the work is done."""

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
from dotllm.index.helper_pool import (
    CLOSED,
    CONTENT,
    HelperPool,
    close_job,
    enter_job,
    exit_job,
    fetch_add,
    load,
    new_job,
    open_job,
    wait_for_job,
)

HERE, BY_HELPERS, OF, FAILED = range(CONTENT, CONTENT + 4)
NOTHING = 0


@nb.njit(nogil=True)
def take(job: Int64, count: int) -> None:
    """Take pieces of work until none is left, counting them in job[count]."""
    left = nb.int64(job.ctypes.data) + 8 * OF
    while fetch_add(left, -1) > 0:
        fetch_add(nb.int64(job.ctypes.data) + 8 * count, 1)


@nb.njit(nogil=True)
def help_forever(job: Int64, me: int, pipe: int) -> None:
    number = 0
    while True:
        number = wait_for_job(job, me, pipe, number)
        if number >= 0 and enter_job(job):
            take(job, BY_HELPERS)
            exit_job(job)


@nb.njit(nogil=True)
def fail_once(job: Int64, me: int, pipe: int) -> None:
    number = 0
    while True:
        number = wait_for_job(job, me, pipe, number)
        if number >= 0 and enter_job(job):
            if fetch_add(nb.int64(job.ctypes.data) + 8 * FAILED, 1) == 0:
                raise MemoryError
            take(job, BY_HELPERS)
            exit_job(job)


@nb.njit(nogil=True)
def share(job: Int64, wake_fds: Int64, pieces: int, awaited: int) -> None:
    """Share ``pieces`` of work. If there are helpers, the caller first waits until the word ``awaited`` of the job is
    not 0; with NOTHING it does not wait."""
    word = nb.int64(job.ctypes.data)
    job[OF], job[HERE], job[BY_HELPERS] = pieces, 0, 0
    open_job(job, wake_fds)
    while awaited != NOTHING and wake_fds.shape[0] > 0 and load(word + 8 * awaited) == 0:
        pass
    take(job, HERE)
    close_job(job)


def call(pieces: int, awaited: int = NOTHING) -> Callable[[Int64, Int64], tuple[int, int]]:
    def part(job: Int64, wake_fds: Int64) -> tuple[int, int]:
        share(job, wake_fds, pieces, awaited)
        return int(job[HERE]), int(job[BY_HELPERS])

    return part


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Here and not at import, because every process of a run imports this file."""
    job, word = nb.int64[::1], nb.int64
    kernels = ((take, (job, word)), (help_forever, (job, word, word)), (fail_once, (job, word, word)),
               (share, (job, job, word, word)))  # fmt: skip
    for kernel, arguments in kernels:
        kernel.compile(nb.void(*arguments))


@pytest.fixture
def pool() -> Iterator[HelperPool]:
    yield HelperPool(help_forever)


def test_helpers_take_part_and_all_is_done_once(pool: HelperPool) -> None:
    for helpers in (1, 3):
        for _ in range(50):
            here, by_helpers = pool.work(helpers, call(10_000, awaited=BY_HELPERS))
            assert by_helpers > 0 and here + by_helpers == 10_000


def test_helpers_come_whether_they_look_or_wait_for_a_byte(pool: HelperPool) -> None:
    """Jobs that follow each other immediately, or after about as long as helpers poll for the next job."""
    pauses = random.Random(0)
    for i in range(600):
        if i % 2:
            time.sleep(pauses.uniform(0, 0.001))
        here, by_helpers = pool.work(1, call(500, awaited=BY_HELPERS))
        assert by_helpers > 0 and here + by_helpers == 500


def test_nothing_is_waited_for_that_does_not_come(pool: HelperPool) -> None:
    for _ in range(200):
        here, by_helpers = pool.work(2, call(3))
        assert here + by_helpers == 3
    assert pool.work(0, call(3)) == (3, 0)


def test_a_closed_board_lets_nobody_in() -> None:
    job = new_job()
    assert not enter_job(job)
    open_job(job, np.empty(0, np.int64))
    assert enter_job(job) and job[0] == 1
    exit_job(job)
    close_job(job)
    assert not enter_job(job) and job[0] == CLOSED


def test_who_finds_the_pool_busy_works_alone(pool: HelperPool) -> None:
    def part(job: Int64, wake_fds: Int64) -> tuple[int, int]:
        assert len(wake_fds) == 1
        found: list[tuple[int, int]] = []
        other = threading.Thread(target=lambda: found.append(pool.work(1, call(5))))
        other.start()
        other.join()
        return found[0]

    assert pool.work(1, part) == (5, 0)


def test_an_error_of_the_caller_leaves_the_pool_ready(pool: HelperPool) -> None:
    def part(job: Int64, wake_fds: Int64) -> None:
        open_job(job, wake_fds)
        raise KeyError

    with pytest.raises(KeyError):
        pool.work(1, part)
    assert sum(pool.work(1, call(1000, awaited=BY_HELPERS))) == 1000


def test_a_helper_that_fails_is_not_waited_for_and_helps_again() -> None:
    pool = HelperPool(fail_once)
    assert sum(pool.work(1, call(1000, awaited=FAILED))) == 1000
    here, by_helpers = pool.work(1, call(1000, awaited=BY_HELPERS))
    assert by_helpers > 0 and here + by_helpers == 1000


def test_a_forked_process_spawns_its_own(pool: HelperPool) -> None:
    pool.work(1, call(100, awaited=BY_HELPERS))
    child = os.fork()
    if child == 0:
        here, by_helpers = pool.work(1, call(100, awaited=BY_HELPERS))
        os._exit(0 if by_helpers > 0 and here + by_helpers == 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
