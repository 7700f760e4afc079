"""Launching a Triton kernel in every step.

Triton looks at each argument of each launch (its type, whether it is a multiple of 16, …) to find the variant that was
compiled for it, which takes some 50 µs on the host: 3 % of a step of a small model, whose pace the host sets. Here the
caller guarantees that all arguments of one ``key`` need the same variant. So the variant is found once, and later
launches call its ``run`` directly, as Triton would. Tensors are passed as addresses (Triton would ask the driver about
each of them), and the hooks of profilers are left out. A launch takes 7 µs (H200, Triton 3.6).

https://github.com/triton-lang/triton/blob/release/3.6.x/python/triton/runtime/jit.py (JITFunction.run)
https://github.com/triton-lang/triton/blob/release/3.6.x/python/triton/compiler/compiler.py (CompiledKernel.__getitem__)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

Grid = tuple[int, int, int]


class Launcher:
    """See the module. One per kernel."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._variants: dict[Hashable, Callable[[Grid, list[int]], None]] = {}

    def __call__(self, key: Hashable, grid: Grid, *arguments: Any) -> None:
        """Launch with ``arguments``, all of them positional, compile-time constants too."""
        launch = self._variants.get(key)
        if launch is not None:
            launch(grid, [a if type(a) is int else a.data_ptr() for a in arguments])
            return
        launched = self._kernel[grid](*arguments)
        if hasattr(launched, "__getitem__"):  # (the interpreter returns nothing)
            self._variants[key] = _launch_of(launched)


def _launch_of(variant: Any) -> Callable[[Grid, list[int]], None]:
    """What launches a compiled kernel on the current stream."""
    from triton.runtime import driver

    run, function, packed = (getattr(variant, name, None) for name in ("run", "function", "packed_metadata"))
    if not callable(run) or not function or packed is None:  # another Triton
        return lambda grid, arguments: variant[grid](*arguments)
    stream, device = driver.active.get_current_stream, driver.active.get_current_device
    return lambda grid, arguments: run(*grid, stream(device()), function, packed, None, None, None, *arguments)
