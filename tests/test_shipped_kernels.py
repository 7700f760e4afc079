"""Machine code in a platform wheel."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba.core.caching import IndexDataCacheFile
from numba.core.registry import cpu_target

from dotllm import shipped_kernels

NAME, KERNEL = "index-0123456789abcdef", "masks.fill-7.py311"
OTHER_CPU = ("x86_64-unknown-linux-gnu", "x86-64-v3", "")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a wheel with one kernel."""
    folder = tmp_path / "machine_code"
    (folder / NAME).mkdir(parents=True)
    IndexDataCacheFile(str(folder / NAME), KERNEL, "").save((("int64",), OTHER_CPU, "its byte code"), "machine code")
    monkeypatch.setattr(shipped_kernels, "FOLDER", folder)
    monkeypatch.setattr(shipped_kernels, "_runs_here", lambda: True)
    return folder


def cache(tmp_path: Path, name: str = NAME) -> Path:
    directory = tmp_path / "cache" / name
    directory.mkdir(parents=True)
    return directory


def test_numba_finds_it_as_that_of_this_cpu(wheel: Path, tmp_path: Path) -> None:
    directory = cache(tmp_path)
    shipped_kernels.adopt(directory, "*.fill-7.py*.nbi")
    found = IndexDataCacheFile(str(directory), KERNEL, "")
    this_cpu = cpu_target.target_context.codegen().magic_tuple()
    assert shipped_kernels.has(NAME)
    assert found.load((("int64",), this_cpu, "its byte code")) == "machine code"


def test_one_kernel_at_a_time(wheel: Path, tmp_path: Path) -> None:
    """Another kernel's index may name types from modules that cannot be imported yet."""
    directory = cache(tmp_path)
    shipped_kernels.adopt(directory, "*.other-7.py*.nbi")
    assert not any(directory.iterdir())


def test_other_sources_or_another_cpu(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, same = cache(tmp_path, "index-of-another-numba"), cache(tmp_path)
    shipped_kernels.adopt(other, "*.nbi")
    monkeypatch.setattr(shipped_kernels, "_runs_here", lambda: False)
    shipped_kernels.adopt(same, "*.nbi")
    assert not shipped_kernels.has(NAME) and not any(other.iterdir()) and not any(same.iterdir())


def test_a_level_of_cpus() -> None:
    """A CPU that lacks one of the level's features has to compile."""
    features = dict.fromkeys(shipped_kernels._FEATURES, True)
    for expected, known in ((True, features), (False, features | {"bmi2": False}), (False, {})):
        shipped_kernels._runs_here.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shipped_kernels, "get_host_cpu_features", lambda known=known: known)
            assert shipped_kernels._runs_here() is expected
    shipped_kernels._runs_here.cache_clear()
