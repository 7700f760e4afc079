"""Judgements on threads: few at a time, equal ones once, those that nobody waits for not at all; the loop runs on."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from dotllm.vllm_plugin.frontend import verdict_pool
from dotllm.vllm_plugin.frontend.verdict_pool import VerdictPool


class Work:
    """Notes what is begun, and waits until it may go on."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_go_on = threading.Event()

    def named(self, name: str) -> None:
        self.begun.append(name)
        assert self.may_go_on.wait(60)


def test_few_at_once_and_equal_ones_once() -> None:
    pool, work = VerdictPool(), Work()

    async def ask() -> None:
        names = [f"{number % 6}" for number in range(12)]
        asked = [asyncio.create_task(pool.run(name, lambda name=name: work.named(name), None)) for name in names]
        while len(work.begun) < verdict_pool.THREADS:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(work.begun) == verdict_pool.THREADS
        work.may_go_on.set()
        assert all(await asyncio.gather(*asked))
        assert sorted(work.begun) == [str(number) for number in range(6)]

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_what_nobody_waits_for_is_not_begun_and_too_much_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_pool, "MOST_JOBS", 4)
    pool, work = VerdictPool(), Work()

    async def ask() -> None:
        asked = [asyncio.create_task(pool.run(name, lambda name=name: work.named(name), None)) for name in "abcd"]
        while len(work.begun) < 2:
            await asyncio.sleep(0.001)
        assert not await pool.run("e", lambda: work.named("e"), None)
        asked[2].cancel()  # its client has gone
        await asyncio.sleep(0)
        assert not await pool.run("e", lambda: work.named("e"), 0.001)  # there is room, but no thread in time
        work.may_go_on.set()
        await asyncio.gather(asked[0], asked[1], asked[3])
        assert sorted(work.begun) == ["a", "b", "d"]

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_errors_reach_who_waits_and_the_switch_interval_is_given_back() -> None:
    ordinary = sys.getswitchinterval()
    pool, within = VerdictPool(), []

    def fails() -> None:
        within.append(sys.getswitchinterval())
        raise KeyError("a bug")

    async def ask() -> None:
        with pytest.raises(KeyError, match="a bug"):
            await pool.run("a", fails, None)
        assert await pool.run("a", lambda: None, None)

    asyncio.run(asyncio.wait_for(ask(), 60))
    assert within[0] < ordinary == sys.getswitchinterval()
