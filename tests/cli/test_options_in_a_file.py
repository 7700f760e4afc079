"""Our options in the file of ``--config`` are taken out of it; vLLM receives the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotllm.cli import options, passthrough

yaml = pytest.importorskip("yaml")

VLLMS = "model: m\nserved-model-name: [a, b]\nstructured-outputs-config:\n  backend: dotllm\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.yaml"


def test_ours_become_variables_and_vllm_gets_the_rest(path: Path) -> None:
    path.write_text(
        VLLMS + "dotllm-coalescence: canonical\ndotllm_compile_threads: 3\ndotllm-cache-memory-bytes: 1GiB\n"
    )
    environment = {"DOTLLM_COALESCENCE": "off"}
    argv = options.take_from_file(["serve", "--config", str(path), "--port", "1"], environment)
    assert environment == {
        "DOTLLM_COALESCENCE": "canonical",
        "DOTLLM_COMPILE_THREADS": "3",
        "DOTLLM_CACHE_MEMORY_BYTES": "1GiB",
    }
    assert (argv[:2], argv[3:]) == (["serve", "--config"], ["--port", "1"])
    assert Path(argv[2]).name == path.name
    assert yaml.safe_load(Path(argv[2]).read_text()) == yaml.safe_load(VLLMS)


def test_the_form_with_an_equals_sign_is_read_too(path: Path) -> None:
    """vLLM takes only ``--config FILE``: it ignores the file of ``--config=FILE``, silently."""
    path.write_text(VLLMS + "dotllm-coalescence: canonical\n")
    environment: dict[str, str] = {}
    argv = options.take_from_file(["serve", f"--config={path}", "--port", "1"], environment)
    assert environment == {"DOTLLM_COALESCENCE": "canonical"}
    assert (argv[:2], argv[3:]) == (["serve", "--config"], ["--port", "1"])
    assert yaml.safe_load(Path(argv[2]).read_text()) == yaml.safe_load(VLLMS)
    path.write_text(VLLMS)
    assert options.take_from_file(["serve", f"--config={path}"], {}) == ["serve", "--config", str(path)]


def test_booleans_of_yaml(path: Path) -> None:
    path.write_text("dotllm-coalescence: off\ndotllm-gpu-masks: on\ndotllm-overlap: false\ndotllm-warnings: true\n")
    environment: dict[str, str] = {}
    options.take_from_file(["serve", "m", "--config", str(path)], environment)
    assert environment == {
        "DOTLLM_COALESCENCE": "off",
        "DOTLLM_GPU_MASKS": "on",
        "DOTLLM_OVERLAP": "off",
        "DOTLLM_WARNINGS": "on",
    }


@pytest.mark.parametrize("content", [VLLMS, "[1, 2]", "a: [", ""])
def test_other_files_are_vllms_matter(path: Path, content: str) -> None:
    path.write_text(content)
    for argv in (["serve", "--config", str(path)], ["serve", "--config", "nowhere.yaml"], ["serve", "m", "--config"]):
        assert options.take_from_file(argv, {}) == argv


@pytest.mark.parametrize("line", ["dotllm-nonsense: 1", "dotllm-coalescence: [off]", "dotllm-store:"])
def test_wrong_ones_end_the_program(path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(line)
    with pytest.raises(SystemExit) as ended:
        options.take_from_file(["serve", "--config", str(path)], {})
    assert ended.value.code == 2
    assert line.partition(":")[0] in capsys.readouterr().err


def test_flags_win(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Here the flag has the wrong value, and the server refuses to start because of it."""
    monkeypatch.setenv("DOTLLM_COALESCENCE", "off")
    path.write_text("dotllm-coalescence: canonical\n")
    assert passthrough.main(["serve", "m", "--config", str(path), "--dotllm-coalescence", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
