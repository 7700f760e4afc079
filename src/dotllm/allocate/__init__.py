"""New arrays inside kernels, as in ``allocate.zero_ints(n)``.

Kernels call these functions by address. Numba would compile `numpy.zeros` again for each argument type in each kind of
kernel, and make it part of the machine code of each caller: a fifth of the compile time of some groups of kernels.
Functions without "zero", "filled" or "copied" in their names return uninitialised arrays. Sizes are int64.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

from dotllm.arrays import Bool, Int32, Int64
from dotllm.jit import B1, I1, I2, I, inner_kernel

_L1, _W1, _W2 = nb.int64[::1], nb.uint64[::1], nb.uint64[:, ::1]


@inner_kernel(I1(I))
def ints(count: int) -> Int32:
    """int32 [count]"""
    return np.empty(count, np.int32)


@inner_kernel(I1(I, nb.int32))
def filled_ints(count: int, value: int) -> Int32:
    """int32 [count], all ``value``."""
    new = np.empty(count, np.int32)
    for i in range(count):
        new[i] = value
    return new


@inner_kernel(I1(I))
def zero_ints(count: int) -> Int32:
    """int32 [count]"""
    new = np.empty(count, np.int32)
    for i in range(count):
        new[i] = 0
    return new


@inner_kernel(I1(I1))
def copied_ints(old: Int32) -> Int32:
    """A copy."""
    new = np.empty(len(old), np.int32)
    for i in range(len(old)):
        new[i] = old[i]
    return new


@inner_kernel(I2(I, I))
def int_rows(rows: int, width: int) -> Int32:
    """int32 [rows, width]"""
    return np.empty((rows, width), np.int32)


@inner_kernel(I2(I, I))
def zero_int_rows(rows: int, width: int) -> Int32:
    """int32 [rows, width]"""
    new = np.empty((rows, width), np.int32)
    for i in range(rows):
        for j in range(width):
            new[i, j] = 0
    return new


@inner_kernel(_L1(I))
def longs(count: int) -> Int64:
    """int64 [count]"""
    return np.empty(count, np.int64)


@inner_kernel(_L1(I, I))
def filled_longs(count: int, value: int) -> Int64:
    """int64 [count], all ``value``."""
    new = np.empty(count, np.int64)
    for i in range(count):
        new[i] = value
    return new


@inner_kernel(_L1(I))
def zero_longs(count: int) -> Int64:
    """int64 [count]"""
    new = np.empty(count, np.int64)
    for i in range(count):
        new[i] = 0
    return new


@inner_kernel(_W1(I))
def zero_words(count: int) -> NDArray[np.uint64]:
    """uint64 [count]"""
    new = np.empty(count, np.uint64)
    for i in range(count):
        new[i] = 0
    return new


@inner_kernel(_W2(I, I))
def zero_word_rows(rows: int, width: int) -> NDArray[np.uint64]:
    """uint64 [rows, width]"""
    new = np.empty((rows, width), np.uint64)
    for i in range(rows):
        for j in range(width):
            new[i, j] = 0
    return new


@inner_kernel(B1(I))
def zero_flags(count: int) -> Bool:
    """bool [count], all false."""
    new = np.empty(count, np.bool_)
    for i in range(count):
        new[i] = False
    return new
