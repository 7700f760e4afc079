"""Lazily committed memory, for large arrays that are filled little by little, or only in part.

NumPy asks for huge pages for arrays of 4 MiB and more. The system clears a huge page as a whole when its first byte is
written, after it has moved other pages to make room: the first 17 MB of a large arena took up to 76 ms of a request's
time. In ordinary pages they take 8 ms, and unwritten parts take no memory.
"""

from __future__ import annotations

import errno
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def reserved(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros of ``shape``, in memory that the system commits page by page as it is written.

    Raises:
        MemoryError: the system has too little memory for the array, or a limit of the process forbids it.
        OSError: the system refuses for another reason.
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
