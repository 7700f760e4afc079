"""Machine code of the kernels that comes with the wheel of a platform; ``tools/platform_wheel.py`` makes such wheels.

It lies in `FOLDER`, under the names of `dotllm.jit`'s cache directories, and is for every CPU of the level `CPU`. Numba
looks for machine code by the name and the features of the CPU that runs it, so a copy gets those of this machine.
Where versions of Python or Numba differ from the wheel's, names differ too, and kernels are compiled as ever.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from llvmlite.binding import get_host_cpu_features
from numba.core.caching import IndexDataCacheFile
from numba.core.registry import cpu_target

FOLDER = Path(__file__).parent.parent / "machine_code"
CPU = "x86-64-v3"
"""LLVM's name of the x86 CPUs since about 2013."""
_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")


@cache
def _runs_here() -> bool:
    features = get_host_cpu_features()
    return all(features.get(name, False) for name in _FEATURES)


def has(name: str) -> bool:
    """Whether the installation has the machine code that the cache directory ``name`` is for, and this CPU runs it."""
    return (FOLDER / name).is_dir() and _runs_here()


def adopt(directory: Path) -> bool:
    """Fill the empty cache ``directory`` with what the installation has for it. False: it has nothing."""
    if not has(directory.name):
        return False
    copies = Path(tempfile.mkdtemp(dir=directory.parent))
    shutil.copytree(FOLDER / directory.name, copies, dirs_exist_ok=True)
    this_cpu = cpu_target.target_context.codegen().magic_tuple()
    for path in copies.glob("*.nbi"):
        index = IndexDataCacheFile(str(copies), path.stem, "")
        entries = index._load_index()
        index._save_index({(signature, this_cpu, code): file for (signature, _, code), file in entries.items()})
    try:
        os.rename(copies, directory)
    except OSError:  # another process was here first
        shutil.rmtree(copies)
    return True
