"""Types used throughout this package.

Kernels are compiled for writable C-contiguous arrays (Numba gives read-only ones another type), so arrays are not
flagged read-only. Nothing writes to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[Any]
"""int32 arrays in all public places, int64 inside kernels."""

U: Any = np.uint64
"""Index type inside kernels: Numba makes every signed index wrap around, which costs a fourth to a half of the time of
these loops. Never mix it with signed integers in arithmetic: the result is a float."""
