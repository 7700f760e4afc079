"""Growing arrays inside kernels."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dotllm import allocate
from dotllm.jit import inner_kernel

Array = NDArray[Any]
Int = Any  # an int64 inside a kernel, an int outside


@inner_kernel("int32[:, ::1](int32[:, ::1], int64, int64)")
def longer_table(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` rows with room for more."""
    new = allocate.zero_int_rows(capacity, old.shape[1])
    for i in range(used):
        for j in range(old.shape[1]):
            new[i, j] = old[i, j]
    return new


@inner_kernel("int64[::1](int64[::1], int64, int64)")
def longer(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` values with room for more."""
    new = allocate.zero_longs(capacity)
    for i in range(used):
        new[i] = old[i]
    return new
