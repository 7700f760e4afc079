"""Errors for wrong arguments from callers.

The kernels check their arguments at almost no cost: Numba checks types and layouts when it selects the signature, and
the kernel checks ranges. The messages here say what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core.errors import NumbaTypeError

from dotllm.arrays import Int64
from dotllm.index.walkable import Walkable

# Numba raises these for arguments that match no signature of the kernel, and for types that it does not know
NO_SIGNATURE = (TypeError, NumbaTypeError)
# a kernel returns these in place of a count
OTHER_VOCABULARY, WRONG_COUNT, TOO_NARROW, OUT_OF_RANGE, NOT_DISTINCT, NO_CONFIGURATION = range(-1, -7, -1)


def integers(values: Any, what: str) -> Int64:
    """Copy ``values``, a sequence of integers or an array of one dimension, to an int64 array [n].

    Integers beyond 64 bits become the nearest 64-bit integer, which is out of every valid range, too.

    Raises:
        TypeError: the values are not integers.
        ValueError: the values do not have one dimension.
    """
    array = np.array(values)
    if array.ndim != 1:
        raise ValueError(f"{what} must have one dimension, not {array.ndim}")
    if array.dtype != np.int64:
        is_beyond = array.dtype.kind == "O" and all(isinstance(value, int) for value in array.tolist())
        if array.dtype.kind not in "iu" and array.size and not is_beyond:
            raise TypeError(f"{what} must be integers, not {array.dtype}")
        if is_beyond or array.dtype == np.uint64:
            array = np.clip(array, -(2**63) if is_beyond else 0, 2**63 - 1)
        array = array.astype(np.int64)
    return array


def no_threads(threads: int) -> ValueError:
    """The error for too few threads."""
    return ValueError(f"threads must be at least 1, not {threads}")


def no_configuration(indexes: Sequence[Walkable], configs: Sequence[int]) -> IndexError:
    """The error for the first of ``configs`` that its index does not have."""
    index, config = next(
        (index, config)
        for index, config in zip(indexes, configs, strict=True)
        if not 0 <= config < index.configurations
    )
    return IndexError(f"this index has no configuration {config} (it has found {index.configurations})")


def not_a_bitmask(bitmask: Any, words: int, layout: str = "C-contiguous, ") -> Exception:
    """The error for an object that no kernel takes as a bitmask."""
    expected = f"bitmask: expected a writable, {layout}int32 array [rows, at least {words}]"
    if not isinstance(bitmask, np.ndarray):
        return TypeError(f"{expected}, got a {type(bitmask).__name__}")
    result = f"{bitmask.dtype} {list(bitmask.shape)}"
    if bitmask.dtype != np.int32:
        return TypeError(f"{expected}, got {result}")
    result += "" if bitmask.flags.c_contiguous else ", not contiguous"
    result += "" if bitmask.flags.writeable else ", read-only"
    return ValueError(f"{expected}, got {result}")


def error_of(
    code: int, guides: Sequence[Any] = (), numbers: Sequence[Any] | Int64 = (), bitmask: Any = None, words: int = 0
) -> Exception:
    """The error for a kernel's code. numbers: the argument that should hold one value for each guide."""
    if code == OTHER_VOCABULARY:
        return ValueError("all guides of a batch must have the same vocabulary")
    if code == WRONG_COUNT:
        return ValueError(f"expected one number for each of {len(guides)} guides, got {len(numbers)}")
    if code == TOO_NARROW:
        return not_a_bitmask(bitmask, words)
    if code == NO_CONFIGURATION:
        return no_configuration([guide.index for guide in guides], [guide.config for guide in guides])
    if code == OUT_OF_RANGE:
        row = next(int(row) for row in numbers if not 0 <= row < len(bitmask))
        return IndexError(f"there is no row {row} in a bitmask of {len(bitmask)} rows")
    return ValueError("targets must be distinct: two guides have the same row of the bitmask")
