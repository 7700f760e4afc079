"""Fixtures for all tests: the data beside the repository, and models made on the spot."""

from __future__ import annotations

import gzip
import importlib.util
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import redis_process

ROOT = Path(__file__).parent.parent


if os.environ.get("PYTEST_XDIST_WORKER"):
    # Left to itself, vLLM binds its worker to the first core: those of two servers, one for each process of the tests,
    # would share it while the second core idles.
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


# How long an example takes is the machine's business: other tests run at the same time.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`tests.distribution` where files are distributed; other ways of xdist (``--dist each``) stay what they are."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests import distribution

    return distribution.Units(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where there is no vLLM (somebody works on the engine alone), tests of the server are skipped; never in CI."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        from tests import distribution

        distribution.longest_first(items)
    if importlib.util.find_spec("vllm") is not None or os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("serve"):
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed"))


@pytest.fixture(autouse=True)
def _our_log_reaches_caplog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a test has registered the plugin, our logger is below vLLM's, which tells the root logger nothing."""
    monkeypatch.setattr(logging.getLogger("dotllm"), "parent", logging.getLogger())


@pytest.fixture(scope="session")
def shared_data() -> Path | None:
    """The folder of data that others wrote (see its README), None where it is not beside the repository."""
    folder = Path(os.environ.get("DOTLLM_SHARED_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def tekken_json(shared_data: Path | None) -> bytes | None:
    """``tokenizer.json`` of the 131,072-token tekken vocabulary, if it is at hand."""
    if shared_data is None:
        return None
    return gzip.decompress((shared_data / "tokenizers" / "tekken" / "tokenizer.json.gz").read_bytes())


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of `dotllm demo`: 8,192 tokens."""
    from dotllm.demo import model

    return model.make(tmp_path_factory.mktemp("demo") / "model")


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, demo_model: Path) -> Path:
    """The demo model; with ``VOCABULARY=large`` one on the tekken vocabulary."""
    from dotllm.demo import model

    if os.environ.get("VOCABULARY") != "large":
        return demo_model
    tekken_json = request.getfixturevalue("tekken_json")
    assert tekken_json is not None, "there is no tekken vocabulary beside the repository"
    return model.make_with_tokenizer(tmp_path_factory.mktemp("tekken") / "model", tekken_json, eos_token="</s>")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(URL, process) of a real Redis server, for one test."""
    with redis_process.running(tmp_path) as server:
        yield server
