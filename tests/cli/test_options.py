"""Our flags become environment variables; vLLM's arguments stay untouched."""

from __future__ import annotations

import importlib

import pytest

from dotllm.cli import options
from dotllm.compilation.options import describe
from dotllm.vllm_plugin import settings


def test_flags_move_to_the_environment() -> None:
    environment: dict[str, str] = {}
    argv = [
        "serve",
        "m",
        "--dotllm-default-backend",
        "vllm",
        "--port",
        "1",
        "--dotllm-cache-memory-bytes=64MiB",
        "--",
        "--x",
    ]
    assert options.export(argv, environment) == ["serve", "m", "--port", "1", "--", "--x"]
    assert environment == {"DOTLLM_DEFAULT_BACKEND": "vllm", "DOTLLM_CACHE_MEMORY_BYTES": "64MiB"}


@pytest.mark.parametrize("argv", [["--dotllm-nonsense", "1"], ["--dotllm-default-backend"]])
def test_bad_flags_end_the_program(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.export(argv, {})
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_a_flag_is_told_what_it_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.export(["--dotllm-coalesence", "off"], {})
    assert 'did you mean "--dotllm-coalescence"?' in capsys.readouterr().err
    for flag, variable in (("compile-threads", "COMPILE_THREADS"), ("store-timeout", "STORE_TIMEOUT")):
        assert options.refused({f"DOTLLM_{variable}": "x"}).startswith(f"--dotllm-{flag}, DOTLLM_{variable}: ")


@pytest.mark.parametrize(
    "argv", [["--dotllm_cache_dir", "a_b"], ["--dotllm_cache_dir=a_b"], ["--dotllm-cache_dir=a_b"]]
)
def test_a_flag_may_be_written_with_underscores_as_vllms_may(argv: list[str]) -> None:
    """vLLM refused it, and spelt it as the help does."""
    environment: dict[str, str] = {}
    assert options.export(["serve", *argv, "--max_model_len", "8"], environment) == ["serve", "--max_model_len", "8"]
    assert environment == {"DOTLLM_CACHE_DIR": "a_b"}


def test_every_option_is_known_to_the_plugin() -> None:
    assert {option.variable for option in options.OPTIONS} <= settings.known()


def test_every_option_is_in_the_help() -> None:
    text = options.help_text()
    assert all(option.flag in text and option.variable in text and option.help in text for option in options.OPTIONS)
    assert len({option.flag for option in options.OPTIONS}) == len(options.OPTIONS)


def test_what_a_server_cannot_start_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options.refused({}) is None
    assert "DOTLLM_CACHE_MEMORY_BYTES" in (options.refused({"DOTLLM_CACHE_MEMORY_BYTES": "much"}) or "")
    compilation = {row[0] for row in describe()}
    for variable in (option.variable for option in options.OPTIONS if option.variable not in compilation):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "perhaps")
            assert variable in (options.refused({}) or "")


@pytest.mark.parametrize("group", ["engines", "ablations"])
def test_servers_that_are_compared_can_start(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.bench import servers

    for variant in servers.read(group):
        if variant.program == "dotllm":
            environment = dict(variant.environment)
            assert options.export(list(variant.flags), environment) == []
            with monkeypatch.context() as patch:
                for variable, value in environment.items():
                    patch.setenv(variable, value)
                assert options.refused(environment) is None, variant.name


def test_the_help_has_every_option_once() -> None:
    text = options.help_text()
    for option in options.OPTIONS:
        assert text.count(f"  {option.flag} {option.metavar}\n") == 1
    flags = {option.flag for option in options.OPTIONS}
    assert {f"--dotllm-{name}" for names in options.GROUPS.values() for name in names} <= flags
    assert (
        text.index("Constraints:")
        < text.index("--dotllm-coalescence")
        < text.index("Limits:")
        < text.index("Advanced:")
    )


@pytest.mark.parametrize(
    "arguments",
    ["inspect --port 99999", "demo --port 70000", "check --vocab-size 9999999999 x", "compile --jobs 0 x", "warmup --vocab-size -5"],
)  # fmt: skip
def test_numbers_of_subcommands_out_of_range(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = arguments.split()
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"dotllm.cli.{name}").main(rest)
    assert ended.value.code == 2 and "is not a whole number from" in capsys.readouterr().err


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.flag)
@pytest.mark.parametrize("argv", ["{}=", "{}= ", "{} "])
def test_an_empty_value_is_refused(option: options.Option, argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty value meant the default, like an empty variable: --dotllm-hooks "" turned all tiers on."""
    with pytest.raises(SystemExit) as ended:
        options.export(argv.format(option.flag).split(" ", 1), {})
    assert ended.value.code == 2
    assert f"{option.flag} needs a value {option.metavar}" in capsys.readouterr().err
