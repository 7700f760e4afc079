"""Launching a Triton kernel in every step.

Triton looks at each argument of each launch (its type, whether it is a multiple of 16, …) to find the variant that was
compiled for it, which takes some 50 µs on the host: twice a step, that is a tenth of a step of a small model, whose
pace the host sets. Where the caller vouches that the arguments of one ``key`` always ask for the same variant, it is
found once, and launched through its own ``[grid]``, which takes the arguments as they are; tensors by their addresses,
because Triton would ask the driver about each of them.

https://github.com/triton-lang/triton/blob/release/3.6.x/python/triton/runtime/jit.py (JITFunction.run)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class Launcher:
    """See the module. One per kernel."""

    def __init__(self, kernel: Any, **options: Any) -> None:
        self._kernel = kernel
        self._options = options
        self._variants: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, grid: tuple[int, int, int], *arguments: Any) -> None:
        """Launch with ``arguments``, all of them positional, compile-time constants too."""
        variant = self._variants.get(key)
        if variant is not None:
            variant[grid](*[a if type(a) is int else a.data_ptr() for a in arguments])
            return
        launched = self._kernel[grid](*arguments, **self._options)
        if hasattr(launched, "__getitem__"):  # (the interpreter returns nothing)
            self._variants[key] = launched
