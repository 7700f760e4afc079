"""Kernels as Python functions, for `tools.mutants`: the code that Numba compiles, without Numba.

Numbers read from arrays become Python's, and numbers written to an array are cut to its width, as in machine code. The
intrinsics (`dotllm.index.helper_pool`) use ctypes.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import extending
from numba.np.numpy_support import as_dtype

from dotllm import jit

NUMBERS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


class AsPython(ast.NodeTransformer):
    """Passes values read from an array through `value_read`, and values to write through `value_to_write`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return _call("value_read", node) if isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        kind = ast.unparse(node.func).removeprefix("np.").removeprefix("nb.")
        return _call("as_number", ast.Constant(kind), *node.args) if kind in NUMBERS else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = self._written(node.targets[0], node.value)
        return node

    def _written(self, target: ast.expr, value: ast.expr) -> ast.expr:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
            return ast.Tuple([self._written(one, other) for one, other in pairs], ast.Load())
        return _call("value_to_write", target.value, value) if isinstance(target, ast.Subscript) else value

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if isinstance(node.target, ast.Subscript):
            read = ast.Subscript(node.target.value, node.target.slice, ast.Load())
            return self.visit_Assign(ast.Assign([node.target], ast.BinOp(read, node.op, node.value)))
        self.generic_visit(node)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def as_python(tree: ast.Module) -> ast.Module:
    """A module with kernels, changed so that its functions run as Python."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [AsPython().visit(one) for one in node.body]
    return ast.fix_missing_locations(tree)


def value_read(value: Any) -> Any:
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def value_to_write(array: Any, value: Any) -> Any:
    if not isinstance(value, int) or not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        return value
    return _cut(value, 8 * array.dtype.itemsize, is_signed=array.dtype.kind == "i")


def as_number(kind: str, value: Any) -> Any:
    number = _cut(int(value), NUMBERS[kind], is_signed=kind[0] == "i")
    return number if kind[0] == "i" else getattr(np, kind)(number)  # whose operators wrap


def _cut(value: int, bits: int, *, is_signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if is_signed and value >> (bits - 1) else value


def carray(address: Any, shape: tuple[int, ...], kind: Any) -> Any:
    """`numba.carray` of an address."""
    dtype = kind if isinstance(kind, np.dtype) else as_dtype(kind)
    size = math.prod(map(int, shape)) * dtype.itemsize
    flat = np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype) if size else np.zeros(0, dtype)
    return flat.reshape(shape).view(np.recarray) if dtype.fields else flat.reshape(shape)


def fetch_add(address: int, value: int) -> int:
    word = ctypes.c_int64.from_address(int(address))
    before, word.value = word.value, word.value + value
    return before


def exchange(address: int, value: int) -> int:
    word = ctypes.c_int64.from_address(int(address))
    before, word.value = word.value, value
    return before


INTRINSICS: dict[str, Callable[..., Any]] = {
    "pointer": int,
    "fetch_add": fetch_add,
    "exchange": exchange,
    "load": lambda address: ctypes.c_int64.from_address(int(address)).value,
    "relax": lambda: None,
    "read_byte": lambda descriptor: len(os.read(descriptor, 1)),
    "write_byte": lambda descriptor: os.write(descriptor, b"\0"),
    "pause_us": lambda microseconds: 0,
}


class Finder(importlib.abc.MetaPathFinder):
    """Imports the modules of dotllm that hold kernels."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname.startswith("dotllm.") else None
        if spec is None or spec.origin is None or "from dotllm.jit import" not in Path(spec.origin).read_text():
            return None
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=Loader(fullname, spec.origin))


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        return compile(as_python(ast.parse(data)), path, "exec", dont_inherit=True)


def are_installed() -> bool:
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def install() -> None:
    """Make kernels that are imported from now on Python functions."""
    extending.intrinsic = lambda function: INTRINSICS[function.__name__]
    jit.kernel = jit.inner_kernel = lambda *_, **__: lambda function: function
    numba.carray = carray
    for function in (value_read, value_to_write, as_number):
        setattr(builtins, function.__name__, function)
    np.seterr(over="ignore")
    sys.meta_path.insert(0, Finder())
