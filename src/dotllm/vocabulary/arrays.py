"""Names of the array types of this package, for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[Any]
"""int32 arrays in all public places, int64 inside kernels."""


def private(array: NDArray[Any]) -> NDArray[Any]:
    """The array as plain C-contiguous ndarray.

    Kernels are compiled for writable arrays (Numba gives read-only ones another type), so arrays are not flagged
    read-only; nobody writes to them.
    """
    return np.ascontiguousarray(array).view(np.ndarray)
