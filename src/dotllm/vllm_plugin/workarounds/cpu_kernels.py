"""Numba and vLLM's CPU platform in one process: a fix, only for CPUs.

When a CPU worker starts, vLLM looks through the objects of all loaded modules for Triton kernels to replace
(``triton_utils/dispatcher.py``, ``_rebind_kernels``), and reads the ``__dict__`` of each that has one. llvmlite's
handle of its library answers to every name, including this one, with a C function, and the worker dies of an
AttributeError. That happens if the engine has imported Numba by then. Special names are not C functions, and the
patched handle says so. As Numba is ours, this hook belongs to the tier ``enforce``.

vLLM 0.32 and 0.33. To be deleted when llvmlite's handle itself has no ``__dict__``.
"""

from __future__ import annotations

from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.workarounds import on_cpu

HOOK = Hook(
    summary="a CPU worker starts although Numba is loaded",
    where=on_cpu,
    without_it="a CPU server may crash at its start, depending on which of two threads is first",
)


@HOOK.replaces("llvmlite.binding.ffi:_lib_wrapper.__getattr__")
def _getattr(self: object, name: str, *, original: Original) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return original(self, name)
