"""Memory that is allocated as it is written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dotllm.system import reserved


def test_zeros_of_any_shape_that_can_be_written() -> None:
    for shape, dtype in ((0, np.int32), (5, np.uint8), ((3, 4), np.int32), ((2, 3), np.int64)):
        array = reserved(shape, dtype)
        assert array.shape == np.empty(shape).shape and array.dtype == dtype and not array.any()
        array[...] = 7
        assert (array == 7).all() and array.flags.c_contiguous and array.flags.writeable


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux what the process holds")
def test_what_is_not_written_takes_nothing() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    array = reserved(1 << 28, np.uint8)
    array[:: 1 << 24] = 1  # writes 16 pages: huge pages would be 32 MiB
    assert resident() - before < 8 << 20
