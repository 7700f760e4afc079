"""Threads of late steps leave the CPUs to the batch that does not wait for them."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from dotllm.index.late_steps import LateSteps


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, threads have no priority of their own")
def test_they_yield_to_the_batch() -> None:
    steps, names = LateSteps(), [str(i) for i in range(20)]

    def work() -> tuple[int, int]:
        return 7, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    for name in names:
        steps.begin(name, threading.RLock(), work)
    assert {steps.steps[name].done.result(300) for name in names} == {10}
