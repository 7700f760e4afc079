"""Machine code of the kernels that a platform wheel ships; ``tools/platform_wheel.py`` makes such wheels.

It lies in `FOLDER`, under the names of `dotllm.jit`'s cache directories, and runs on every CPU of the level `CPU`.
Numba looks machine code up by the name and the features of the CPU, so a copy is labelled with those of this machine.
Where versions of Python or Numba differ from the wheel's, names differ too, and kernels are compiled as usual.
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
    """Copy the installation's machine code of ``kernel`` (a pattern of its index's file) into the cache ``directory``.

    It copies one kernel at a time, because Numba's indexes name the types of arguments, and so import the modules that
    define them.
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
