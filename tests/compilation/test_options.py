import pwd
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from dotllm import system
from dotllm.cli.options import OPTIONS
from dotllm.compilation.metrics import COUNTERS, GAUGES, HISTOGRAMS
from dotllm.compilation.options import (
    CompilationOptions,
    describe,
    flag_of,
    format_bytes,
    parse_bytes,
    parse_switch,
    variable_name,
)
from dotllm.system import user_cache_directory


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64k", 65536),
        ("512MiB", 512 << 20),
        ("1.5 GB", 3 << 29),
        ("2tib", 2 << 40),
        (" 7b ", 7),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value
    assert parse_bytes(format_bytes(value)) == value


@pytest.mark.parametrize("text", ["", "many", "-1", "1x", "1 2", "k"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


def test_environment() -> None:
    options = CompilationOptions.from_environment(
        {"DOTLLM_DISK_BYTES": "2g", "DOTLLM_STORE": "file:///x", "DOTLLM_OVERLAP": "off", "DOTLLM_STORE_TIMEOUT": "0.5"}
    )
    assert options.disk_bytes == 2 << 30 and options.store == "file:///x"
    assert options.overlap is False and options.store_timeout == 0.5
    assert CompilationOptions.from_environment({"DOTLLM_STORE": ""}) == CompilationOptions()


def test_a_bad_value_is_named() -> None:
    with pytest.raises(ValueError, match="DOTLLM_QUEUE_LIMIT"):
        CompilationOptions.from_environment({"DOTLLM_QUEUE_LIMIT": "lots"})
    with pytest.raises(ValueError, match="expected on or off"):
        parse_switch("maybe")
    assert all(map(parse_switch, ("on", "1", " TRUE", "Yes"))) and not any(map(parse_switch, ("off", "0", "No ")))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("COMPILE_TIMEOUT", text) for text in ("0", "-1", "nan", "inf", "abc", "1e999")),
        *(("STORE_TIMEOUT", text) for text in ("0", "nan")),
        *(("COMPILE_PROCESSES", text) for text in ("-2", "1.5", "two")),
        ("COMPILE_THREADS", "0"), ("QUEUE_LIMIT", "0"), ("FAILURE_TTL", "-5"), ("STORE_WRITE_INTERVAL", "nan"),
        ("COMPILE_ON", "http://x"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"DOTLLM_{name}: '{text}' is not "):
        CompilationOptions.from_environment({f"DOTLLM_{name}": text})


def test_numbers_at_the_end_of_their_range() -> None:
    least = {"COMPILE_TIMEOUT": 0.001, "COMPILE_PROCESSES": 0, "COMPILE_THREADS": 1, "QUEUE_LIMIT": 1, "FAILURE_TTL": 0}
    options = CompilationOptions.from_environment({f"DOTLLM_{name}": str(value) for name, value in least.items()})
    assert [getattr(options, name.lower()) for name in least] == [*least.values()]


def test_sizes_that_are_too_little_or_too_much() -> None:
    with pytest.raises(ValueError, match="DOTLLM_COMPILE_MEMORY: '0' is too small; the minimum is 64MiB"):
        CompilationOptions.from_environment({"DOTLLM_COMPILE_MEMORY": "0"})
    with pytest.raises(ValueError, match=r"DOTLLM_DISK_BYTES: '9+' is not a size"):
        CompilationOptions.from_environment({"DOTLLM_DISK_BYTES": "9" * 5000})


def test_stores_without_a_transport_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with such a store started, and then every structured request failed."""
    for url, why in (("wat://x", "not known"), ("/a/path", "is not a URL"), ("redis://x", "needs another package")):
        monkeypatch.setitem(sys.modules, "redis", None)
        with pytest.raises(ValueError, match=f"DOTLLM_STORE: .*{why}"):
            CompilationOptions.from_environment({"DOTLLM_STORE": url})


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file://srv/indexes", "needs an absolute path"),  # it was a folder of the directory of the start
        ("file://~/indexes", "needs an absolute path"),
        ("file://", "needs an absolute path"),  # it was the root directory
        ("http://", "names no place .examples: s3://bucket/path"),
        ("memory://[", "IPv6"),
        ("redis://host:port/0", "Port"),  # these failed at each call
        ("redis://host:99999/0", "Port"),
        ("redis://host/0?ttl=soon", "soon"),
        ("redis://host/0?tls=1", "tls"),
    ],
)
def test_stores_that_never_answer_are_named(url: str, why: str) -> None:
    if url.startswith("redis"):
        pytest.importorskip("redis")
    with pytest.raises(ValueError, match=why) as error:
        CompilationOptions.from_environment({"DOTLLM_STORE": url})
    assert str(error.value).startswith("DOTLLM_STORE: ")


@pytest.mark.parametrize(
    "url",
    [
        "file:///srv/x",
        "file:/srv/x",
        "memory://",
        "http://host/x",
        "redis://",
        "redis://:p@h:1/2?ttl=5",
        "rediss://h",
        "unix:///r.sock?db=1",
    ],
)
def test_stores_that_may_answer(url: str) -> None:
    if url.startswith(("redis", "unix")):
        pytest.importorskip("redis")
    assert CompilationOptions.from_environment({"DOTLLM_STORE": url}).store == url


def test_a_cluster_needs_processes_beside_it() -> None:
    ray = {"DOTLLM_COMPILE_ON": "ray://auto"}
    assert CompilationOptions.from_environment(ray).compile_on == "ray://auto"
    with pytest.raises(ValueError, match="DOTLLM_COMPILE_ON: needs compile processes: set DOTLLM_COMPILE_PROCESSES"):
        CompilationOptions.from_environment({**ray, "DOTLLM_COMPILE_PROCESSES": "0"})


def test_off_the_network_by_default() -> None:
    options = CompilationOptions()
    assert not options.store and not options.compile_on


@pytest.mark.parametrize(("cpus", "processes"), [(1, 2), (8, 2), (12, 3), (16, 4), (128, 4)])
def test_compile_processes_follow_the_cpus(cpus: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "usable_cpus", lambda: cpus)
    assert CompilationOptions().compile_processes == processes
    assert CompilationOptions(compile_processes=0).compile_processes == 0


def test_every_option_is_described() -> None:
    rows = describe()
    assert len(rows) == len(fields(CompilationOptions))
    for (variable, metavar, text), field in zip(rows, fields(CompilationOptions), strict=True):
        assert variable == variable_name(field.name)
        assert flag_of(variable) == "--dotllm-" + field.name.replace("_", "-")
        assert metavar and text


def test_the_documentation_lists_every_option_and_metric() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    for option in OPTIONS:
        assert f"`{option.flag}` `{option.metavar}`" in text and f"`{option.variable}`" in text, option.flag
    for *_, meaning in describe():
        assert meaning in text
    for name in COUNTERS:
        assert f"`{name}_total`" in text
    for name in [*GAUGES, *HISTOGRAMS]:
        assert f"`{name}`" in text


def test_there_is_one_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DOTLLM_CACHE_DIR", raising=False)
    assert CompilationOptions().disk_directory == user_cache_directory() / "index" == tmp_path / "dotllm" / "index"
    for invalid in ("here", ".", ""):  # the specification: a path that is not absolute is ignored
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert user_cache_directory() == tmp_path / "home" / ".cache" / "dotllm"
    monkeypatch.setenv("DOTLLM_CACHE_DIR", str(tmp_path / "own"))
    assert CompilationOptions().disk_directory == user_cache_directory() / "index" == tmp_path / "own" / "index"
    assert CompilationOptions(cache_dir="/elsewhere").disk_directory == Path("/elsewhere/index")


def test_a_user_without_a_home_has_a_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> pwd.struct_passwd:
        raise KeyError

    for name in ("XDG_CACHE_HOME", "DOTLLM_CACHE_DIR", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert user_cache_directory() == Path("/.cache/dotllm")
