"""Memory that is allocated as it is written."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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


def worst_wait(give_back: Callable[[], object], is_given_back: Callable[[], bool]) -> float:
    """The most seconds that this thread waits for new memory from the call of ``give_back`` on."""
    give_back()
    worst, deadline = 0.0, time.perf_counter() + 60
    while not is_given_back():
        assert time.perf_counter() < deadline
        began = time.perf_counter()
        mmap.mmap(-1, 1 << 20).close()
        worst = max(worst, time.perf_counter() - began)
    return worst


def test_memory_that_is_given_back_keeps_no_other_thread_waiting() -> None:
    """Linux maps no memory for a process while it takes pages of a mapping back."""
    whole, ours = [], []
    for _ in range(5):
        pages = mmap.mmap(-1, 1 << 28, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        pages.write(bytes([1]) * len(pages))
        thread = threading.Thread(target=pages.close)
        whole.append(worst_wait(thread.start, lambda thread=thread: not thread.is_alive()))  # type: ignore[misc]
        before = resident()
        arrays = [reserved(1 << 28, np.uint8)]
        arrays[0][:] = 1
        ours.append(worst_wait(arrays.clear, lambda before=before: resident() - before < 1 << 22))  # type: ignore[misc]
    assert min(ours) < sorted(whole)[2] / 3, (ours, whole)


def test_memory_that_there_is_not_leaves_nothing_to_give_back() -> None:
    code = """if True:
        import time
        import numpy as np
        from dotllm.system import reserved
        try:
            reserved(1 << 60, np.uint8)
        except MemoryError:
            time.sleep(0.2)  # a thread may say something
            print("none")
        """
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, text=True)
    assert done.stdout == "none\n" and not done.stderr


def test_a_process_ends_that_still_has_memory() -> None:
    code = "import numpy as np; from dotllm.system import reserved; array = reserved(1 << 24, np.uint8); array[:] = 1"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
