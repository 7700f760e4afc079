"""A gate holds whoever comes, for no longer than it was closed for."""

from __future__ import annotations

import threading
import time

from dotllm.vllm_plugin.gpu.gate import Gate


def test_it_is_open_at_first_and_when_it_was_opened() -> None:
    gate = Gate()
    gate.wait()
    gate.close(60)
    gate.open()
    gate.wait()


def test_it_holds_until_it_is_opened() -> None:
    gate, passed = Gate(), threading.Event()
    gate.close(60)

    def walk() -> None:
        gate.wait()
        passed.set()

    thread = threading.Thread(target=walk, daemon=True)
    thread.start()
    assert not passed.wait(0.05)
    gate.open()
    assert passed.wait(20)


def test_nobody_waits_for_longer_than_it_was_closed_for() -> None:
    gate = Gate()
    gate.close(0.02)
    gate.close(60)
    began = time.monotonic()
    gate.wait()
    assert 0.01 < time.monotonic() - began < 20
    gate.wait()
    gate.close(0.05)
    began = time.monotonic()
    gate.wait()
    assert 0.04 < time.monotonic() - began < 20, "its time over, it can be closed again"


def test_an_earlier_opening_does_not_let_through_who_comes_later() -> None:
    gate = Gate()
    for _ in range(3):
        gate.close(0.02)
        began = time.monotonic()
        gate.wait()
        assert time.monotonic() - began > 0.01
        gate.close(60)
        gate.open()
        gate.wait()
