"""The tiers of hooks: which are on, and what a process imports for them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dotllm.vllm_plugin import register, registry, settings, tiers
from tests.serve import zygote


def loaded(*processes: tuple[str, str]) -> list[dict[str, list[str]]]:
    """The imports of processes in which a module of vLLM's has loaded plugins, for each with the value of DOTLLM_HOOKS."""
    command = [sys.executable, Path(__file__).with_name("load_plugins.py"), json.dumps(processes)]
    status, said = zygote.run(command, os.environ, 600)
    assert status == 0, said
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("value", ["", "all", " ALL "])
def test_all_are_on_where_nobody_says(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DOTLLM_HOOKS", value)
    assert tiers.chosen() == set(tiers.TIERS)


def test_every_choice_is_taken_or_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 63 choices."""
    for count in range(1, len(tiers.TIERS) + 1):
        for named in combinations(tiers.TIERS, count):
            monkeypatch.setenv("DOTLLM_HOOKS", " ,".join(named).upper())
            lacks = {needed for tier in named for needed in tiers.NEEDS.get(tier, ())} - {*named}
            if not lacks and tiers.ENFORCE in named:
                assert tiers.chosen() == {*named}
                continue
            with pytest.raises(ValueError, match=r"needs |without enforce") as error:
                tiers.chosen()
            assert any(needed in str(error.value) for needed in (*lacks, tiers.ENFORCE))


def test_an_unknown_tier_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_HOOKS", "enforce,sped")
    with pytest.raises(ValueError, match=r"no tier 'sped'; the tiers are enforce, speed, api"):
        tiers.chosen()


def test_each_hook_has_a_tier_and_a_process() -> None:
    assert {entry.tier for entry in registry.ENTRIES} == set(tiers.TIERS)
    assert {entry.process for entry in registry.ENTRIES} == {*tiers.PROCESSES, tiers.EVERY}
    assert len({entry.name for entry in registry.ENTRIES}) == len(registry.ENTRIES)


@pytest.mark.serve
def test_a_process_imports_what_is_for_it() -> None:
    pytest.importorskip("vllm")
    worker, core, neither = loaded(
        ("vllm.v1.worker.worker_base", ""),
        ("vllm.v1.engine.core", "enforce"),
        ("vllm.model_executor.models.registry", ""),
    )
    assert worker["hooks"] == [entry.name for entry in registry.ENTRIES if entry.process == tiers.WORKER]
    assert worker["heavy"] == []
    assert not any(f".{folder}." in name for folder in ("enforce", "api", "tools") for name in worker["ours"])
    chosen = {entry.name for entry in registry.ENTRIES if entry.tier == "enforce" and entry.process == "engine core"}
    assert {*core["hooks"]} == chosen
    assert not any(f".{folder}." in name for folder in ("api", "tools", "extra") for name in core["ours"])
    assert neither["hooks"] == []


@pytest.mark.serve
@pytest.mark.parametrize(("caller", "processes"), [*registry.ASKED_BY.items(), ("__main__", tiers.PROCESSES)])
def test_a_process_gets_a_further_role(
    caller: str, processes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ``LLM`` without separate processes, and in forked processes: plugins have been loaded."""
    plugins = pytest.importorskip("vllm.plugins")
    registry.apply_required()
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(registry, "apply_required", asked.append)
    monkeypatch.setattr(plugins, "plugins_loaded", True)
    names: dict[str, Any] = {"__name__": caller, "__spec__": importlib.util.spec_from_loader(caller, None)}
    exec("def load():\n    from vllm.plugins import load_general_plugins\n    load_general_plugins()", names)
    names["load"]()
    names["__name__"] = "__main__"  # as by ``python -m``
    names["load"]()
    assert asked == [processes, processes]


@pytest.mark.serve
def test_the_caller_of_vllms_function_is_asked_not_its_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins are loaded a first time through our function if somebody has called `register` before."""
    plugins = pytest.importorskip("vllm.plugins")
    registry.apply_required()
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(registry, "apply_required", asked.append)
    monkeypatch.setattr(plugins, "plugins_loaded", False)
    monkeypatch.setattr(plugins, "load_plugins_by_group", lambda group: {"dotllm": register})
    caller = "vllm.v1.engine.core"
    names: dict[str, Any] = {"__name__": caller, "__spec__": importlib.util.spec_from_loader(caller, None)}
    names["load"] = plugins.load_general_plugins
    exec("def begin(): load()", names)
    names["begin"]()
    assert asked == [(tiers.ENGINE_CORE,)] * 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DOTLLM_COALESCENCE", "canonical"),
        ("DOTLLM_FINISH_WITHIN_MAX_TOKENS", "on"),
        ("DOTLLM_INSPECT", "on"),
        ("DOTLLM_PREVIEW", "on"),
    ],
)
def test_an_extra_that_is_on_needs_its_tier(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("DOTLLM_HOOKS", "enforce,speed")
    assert settings.value(variable) == "off"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}='{value}' needs the tier extra, which is off"):
        settings.value(variable)
    monkeypatch.setenv("DOTLLM_HOOKS", "enforce,speed,api,extra")
    assert settings.value(variable) == value


def test_the_readme_counts_the_hooks() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"dotllm changes vLLM through {len(registry.ENTRIES)} hooks" in readme
