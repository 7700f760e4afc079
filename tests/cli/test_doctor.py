"""`dotllm doctor` on a sound machine, and on machines with a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dotllm import jit
from dotllm.cli import demo, doctor, passthrough, vllm_metadata
from dotllm.vllm_plugin import releases


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    status = doctor.main(["--quick", "--json", *arguments])
    return status, {row["what"]: row for row in json.loads(capsys.readouterr().out)}


def test_all_is_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "missing_groups", lambda *_: [])
    status, found = findings(capsys)
    assert set(found) == {"versions", "vLLM", "kernels", "cache", "cores"}
    assert status == 0, found
    assert doctor.main(["--quick"]) == 0
    assert capsys.readouterr().out.count("ok ") == 5


def test_what_is_wrong_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "missing_groups", lambda *_: ["grammar"])
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: "0.31.0")
    monkeypatch.setenv("DOTLLM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda *_: False)
    status, found = findings(capsys, "--tokenizer", str(tmp_path / "nowhere"))
    assert status == 1
    wrong = {name: str(row["help"]) for name, row in found.items() if not row["is_well"]}
    assert set(wrong) == {"vLLM", "kernels", "cache", "tokenizer"}
    assert "dotllm warmup" in wrong["kernels"] and "DOTLLM_CACHE_DIR" in wrong["cache"]
    assert "the last dotllm for it" in wrong["vLLM"] and "nowhere" in wrong["tokenizer"]


def test_a_library_that_the_cpu_build_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip does not bring it, and vLLM's own error is that an operator has no attribute."""

    def load(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", load)
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: f"{releases.SUPPORTED[0]}.0+cpu")
    status, found = findings(capsys)
    assert status == 1 and "libnuma.so.1" in str(found["vLLM"]["help"])
    assert passthrough.main(["serve", "m"]) == 1 and "libnuma.so.1" in capsys.readouterr().err
    assert demo.main([]) == 2 and "libnuma.so.1" in capsys.readouterr().err
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: f"{releases.SUPPORTED[0]}.0")
    assert "libnuma" not in str(findings(capsys))


def test_a_checkout_that_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`dotllm serve` refuses it."""
    monkeypatch.setattr(vllm_metadata, "vllm_version", lambda: f"{releases.SUPPORTED[0]}.0")
    monkeypatch.setattr(vllm_metadata, "is_plugin", lambda: False)
    status, found = findings(capsys)
    assert status == 1 and "pip install ." in str(found["vLLM"]["help"])
