"""Machine code of the kernels that a platform wheel ships; ``tools/platform_wheel.py`` makes such wheels.

The machine code is in `FOLDER`, under the names of `dotllm.jit`'s cache directories, and runs on every CPU of the level
`CPU`. Numba looks up machine code by the name and the features of the CPU, so a copy gets the label of this machine. If
the version of Python or Numba is not the wheel's, the names differ, and kernels are compiled as usual.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from llvmlite.binding import get_host_cpu_features
from numba.core.caching import IndexDataCacheFile
from numba.core.registry import cpu_target

FOLDER = Path(__file__).parent / "machine_code"
CPU = "x86-64-v3"
"""LLVM's name of the x86 CPUs since about 2013."""
_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")


@cache
def _runs_here() -> bool:
    features = get_host_cpu_features()
    return all(features.get(name, False) for name in _FEATURES)


def has(name: str) -> bool:
    """Whether the installation has machine code for the cache directory ``name``, and this CPU can run it."""
    return (FOLDER / name).is_dir() and _runs_here()


def adopt(directory: Path, kernel: str) -> None:
    """Copy the installation's machine code of ``kernel`` (a pattern for its index file) into the cache ``directory``.

    One kernel is copied at a time, because loading one of Numba's index files imports the modules that define the types
    of the kernel's arguments.
    """
    if not has(directory.name):
        return
    this_cpu = cpu_target.target_context.codegen().magic_tuple()
    for path in (FOLDER / directory.name).glob(kernel):
        entries = IndexDataCacheFile(str(path.parent), path.stem, "")._load_index()
        for file in entries.values():
            shutil.copyfile(path.with_name(file), directory / file)
        ours = {(signature, this_cpu, code): file for (signature, _, code), file in entries.items()}
        IndexDataCacheFile(str(directory), path.stem, "")._save_index(ours)
