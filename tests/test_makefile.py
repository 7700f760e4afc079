"""What ``make install`` does where something is missing, and which failures end CI's run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
INDEX = re.findall(r"--index-url (\S+)", (ROOT / "deploy" / "docker" / "Dockerfile.cpu").read_text(encoding="utf-8"))


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def installed(
    folder: Path, pip: str, *variables: str, target: str = ".installed"
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The run of ``make`` with a stand-in for pip, and what that was asked for: torch, or lists."""
    log = folder / "asked"
    log.touch()
    program(folder / "bin" / "dotllm", "exit 0")
    stand_in = program(folder / "pip", f'echo "$@" >> "{log}"\n{pip}')
    command = ["make", f"{folder}/{target}", f"VENV={folder}", "PYTHON=true", f"PIP={stand_in}", *variables]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    asked = log.read_text(encoding="utf-8").splitlines()
    return done, [line for line in asked if ("torch==" if target == ".installed" else "-r ") in line]


def test_torch_comes_from_pytorchs_own_index_if_the_configured_index_has_no_cpu_build(tmp_path: Path) -> None:
    done, asked = installed(tmp_path, 'case "$*" in *--index-url*) exit 0;; *torch==*) exit 1;; esac')
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = asked
    assert "--index-url" not in first and f"--index-url {INDEX[0]} " in second


def test_a_new_environment_for_tests_gets_all_packages_while_the_kernels_compile(tmp_path: Path) -> None:
    done, asked = installed(tmp_path, "exit 0", target=".installed-dev")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.rpartition("/")[2] for line in asked] == ["cpu.txt", "dev.txt", "dev.txt"]


@pytest.mark.parametrize("variables", [(), ("TORCH_INDEX=file:///mirror",)])
def test_torch_that_is_nowhere_ends_the_installation(tmp_path: Path, variables: tuple[str, ...]) -> None:
    done, asked = installed(tmp_path, 'case "$*" in *torch==*) exit 1;; esac', *variables)
    assert done.returncode and "TORCH_INDEX" in done.stdout and not (tmp_path / ".installed").exists()
    assert len(asked) == (1 if variables else 2)


@pytest.mark.parametrize("failing", ["", "install-dev", "lint", "test", "audit"])
def test_cis_run_fails_with_its_parts_but_not_with_the_audit(failing: str, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    program(tmp_path / "make", f'echo "$@" >> "{log}"; [ "$1" != "{failing}" ]')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([ROOT / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert (done.returncode == 0) is (failing in ("", "audit")), done.stdout + done.stderr
    asked = log.read_text(encoding="utf-8").split()
    assert asked[0] == "install-dev"
    assert sorted(asked[1:]) == ([] if failing == "install-dev" else ["audit", "lint", "test"])
