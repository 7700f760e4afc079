"""Memory that is allocated as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dotllm.system import reserved

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux what the process holds")


def test_zeros_of_any_shape_that_can_be_written() -> None:
    for shape, dtype in ((0, np.int32), (5, np.uint8), ((3, 4), np.int32), ((2, 3), np.int64)):
        array = reserved(shape, dtype)
        assert array.shape == np.empty(shape).shape and array.dtype == dtype and not array.any()
        array[...] = 7
        assert (array == 7).all() and array.flags.c_contiguous and array.flags.writeable


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_not_written_takes_nothing() -> None:
    before = resident()
    array = reserved(1 << 28, np.uint8)
    array[:: 1 << 24] = 1  # writes 16 pages: huge pages would be 32 MiB
    assert resident() - before < 8 << 20


def test_another_thread_gives_memory_back() -> None:
    before = resident()
    array = reserved(1 << 28, np.uint8)
    array[:] = 1
    view = array[5:9]
    began, cpu = time.perf_counter(), time.thread_time()
    del array
    assert resident() - before > 1 << 27 and view.tolist() == [1] * 4
    del view
    spent = time.thread_time() - cpu
    deadline = began + 60
    while resident() - before > 1 << 26:
        assert time.perf_counter() < deadline
        time.sleep(0.001)
    assert spent < 0.01  # 256 MiB take 25 ms


def test_a_process_ends_that_still_has_memory() -> None:
    code = "import numpy as np; from dotllm.system import reserved; array = reserved(1 << 24, np.uint8); array[:] = 1"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
