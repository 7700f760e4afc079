"""Growing arrays inside kernels. Loops, because an assignment to a slice compiles for seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.jit import inner_kernel

Array = NDArray[Any]
Int = Any  # an int64 inside a kernel, an int outside


@inner_kernel("int32[::1](int32[::1])")
def copy(old: Array) -> Array:
    """A copy, by a loop (see `longer_table`)."""
    new = np.empty(len(old), np.int32)
    for i in range(len(old)):
        new[i] = old[i]
    return new


@inner_kernel("int32[:, ::1](int32[:, ::1], int64, int64)")
def longer_table(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` rows with room for more."""
    new = np.zeros((capacity, old.shape[1]), np.int32)
    for i in range(used):
        for j in range(old.shape[1]):
            new[i, j] = old[i, j]
    return new


@inner_kernel("int64[::1](int64[::1], int64, int64)")
def longer(old: Array, used: Int, capacity: Int) -> Array:
    """A copy of the first ``used`` values with room for more."""
    new = np.zeros(capacity, np.int64)
    for i in range(used):
        new[i] = old[i]
    return new
