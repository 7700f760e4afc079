"""What Numba lacks for kernels of several threads that work without the GIL: atomic operations on words of an int64
array, a hint to the processor, and three calls of the operating system.

LLVM has the former for every machine (one instruction each), the C library the calls. A word is named by its address,
as arenas are (see `kernels`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_ORDER = "seq_cst"


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def fetch_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to the word at ``address``; what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def exchange(typing_context: Any, address: Any, value: Any) -> Any:
    """Set the word at ``address``; what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """The word at ``address``, and with it all that was written before it was set."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(builder, arguments[0]), _ORDER, 8)

    return types.int64(types.int64), codegen


_HINTS = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}  # 1: yield


@intrinsic
def relax(typing_context: Any) -> Any:
    """Wait some ten nanoseconds in a loop that looks at a word, and leave the core to its other hyper-thread."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name, numbers = _HINTS.get(builder.module.triple.split("-")[0], (None, ()))
        if name is not None:
            number = ir.IntType(32)
            function_type = ir.FunctionType(ir.VoidType(), [number for _ in numbers])
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            builder.call(function, [number(n) for n in numbers])
        return context.get_dummy_value()

    return types.void(), codegen


def _one_byte(context: Any, builder: Any, descriptor: Any, name: str) -> Any:
    """``name(descriptor, a byte, 1)``."""
    size, number, byte = ir.IntType(64), ir.IntType(32), ir.IntType(8)
    function_type = ir.FunctionType(size, [number, byte.as_pointer(), size])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    buffer = cgutils.alloca_once_value(builder, byte(0))
    return builder.call(function, [builder.trunc(descriptor, number), buffer, size(1)])


@intrinsic
def read_byte(typing_context: Any, descriptor: Any) -> Any:
    """Wait for a byte from a pipe and take it: 1. Anything else: interrupted, or the pipe is closed."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _one_byte(context, builder, arguments[0], "read")

    return types.int64(types.int64), codegen


@intrinsic
def write_byte(typing_context: Any, descriptor: Any) -> Any:
    """Put a byte into a pipe: 1 if it took it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _one_byte(context, builder, arguments[0], "write")

    return types.int64(types.int64), codegen


@intrinsic
def pause_us(typing_context: Any, microseconds: Any) -> Any:
    """Sleep."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number]), "usleep")
        return builder.sext(builder.call(function, [builder.trunc(arguments[0], number)]), ir.IntType(64))

    return types.int64(types.int64), codegen
