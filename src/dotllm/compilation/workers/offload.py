"""Which `OffloadCompiler` the options ask for: processes of this machine, other machines, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dotllm.compilation.contract import OffloadCompiler
from dotllm.compilation.options import CompilationOptions


def offload_compiler(
    vocabulary: Any, options: CompilationOptions, load: Callable[[Path | bytes, Any], Any]
) -> OffloadCompiler | None:
    """``load``: as in `Engine`."""
    if options.compile_processes <= 0:
        return None
    from dotllm.compilation.workers.process import ProcessCompiler

    local = ProcessCompiler(
        vocabulary,
        processes=options.compile_processes,
        timeout=options.compile_timeout,
        memory=options.compile_memory,
        load=load,
    )
    if not options.compile_on:
        return local
    from dotllm.compilation.workers.remote import RayCompiler

    return RayCompiler(
        options.compile_on,
        vocabulary,
        timeout=options.compile_timeout,
        memory=options.compile_memory,
        fallback=local,
        load=load,
    )
