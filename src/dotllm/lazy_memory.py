"""Large arrays that are filled little by little, or only in part.

NumPy asks for huge pages for whatever has 4 MiB. A huge page is cleared as a whole when its first byte is written,
after the system has made room for it by moving others: the first 17 MB of a large arena took up to 76 ms, of a
request's time. In ordinary pages they take 8 ms, and what is never written takes nothing.
"""

from __future__ import annotations

import errno
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def reserved(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros, in memory that the system gives page by page as it is written.

    Raises:
        MemoryError: the system has no room for them, or the process may not have it.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"no room for {size} bytes") from None
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, size // np.dtype(dtype).itemsize).reshape(shape)
