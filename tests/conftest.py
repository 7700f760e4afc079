"""Fixtures for all tests: the data next to the repository, and models made during the run."""

from __future__ import annotations

import gc
import gzip
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import cases, not_run, redis_process

ROOT = Path(__file__).parent.parent
SHARED_DATA = Path(os.environ.get("DOTLLM_SHARED_DATA", ROOT.parent / "shared" / "data"))
"""Data of others, in the folders that docs/testing.md describes."""
SERVER_PATIENCE_S = 3000
"""Seconds for a test that starts servers: ten times what the longest takes on an idle machine."""


# Our Triton kernels run in Triton's interpreter, which must be chosen before Triton is imported (by vLLM, say).
os.environ["TRITON_INTERPRET"] = "1"

if os.environ.get("PYTEST_XDIST_WORKER"):
    # By default, vLLM binds its worker to the first core. The workers of two servers (one for each test process) would
    # share that core while the second core idles.
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


# The time of an example depends on the machine: other tests run at the same time.
hypothesis.settings.register_profile("no deadline", deadline=None, max_examples=cases.few(100))
hypothesis.settings.load_profile("no deadline")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`tests.distribution` with ``--dist loadfile``; xdist's other modes (such as ``--dist each``) stay unchanged."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests import distribution

    return distribution.Units(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """The processes are forks of one that has imported vLLM (`tests.serve.zygote`), unless STARTS=real."""
    if os.environ.get("STARTS") != "real" and importlib.util.find_spec("vllm") is not None:
        for spec in specs:
            spec.python = f"{sys.executable} -m tests.serve.zygote fork"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """From now on the garbage collector ignores the tests and vLLM's modules: to pass through them takes a second.

    And pytest no longer sees most third-party loggers: six times for each test it looks at all 1,200, adds its handlers
    to those that pass nothing on, and removes them again. Eighty of these 87 are torch's (2 ms a test). The others stay,
    and so do those whose names we use.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        loggers = logging.root.manager.loggerDict
        for name, logger in [*loggers.items()]:
            passes_on = name.partition(".")[0] == "torch" or getattr(logger, "propagate", True)
            if passes_on and name != "vllm" and not name.startswith(("dotllm", "vllm.entrypoints")):
                del loggers[name]
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without vLLM (when only the engine is worked on), server tests are skipped; never in CI."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        from tests import distribution

        distribution.longest_first(items)
    for item in items:  # the time-out includes the fixtures, and the machine may have other work
        if item.get_closest_marker("serve") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SERVER_PATIENCE_S))
    if importlib.util.find_spec("vllm") is not None or os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("serve"):
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of a full run names the tests that were not run, and how to run them (`not_run`)."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or os.environ.get("PYTEST_XDIST_WORKER") or config.args != config.getini("testpaths"):
        return
    skipped = reporter.stats.get("skipped", ())
    said = not_run.paragraph(
        one.longrepr[2] if isinstance(one.longrepr, tuple) else str(one.longrepr) for one in skipped
    )
    if said:
        reporter.write_line(said)


@pytest.fixture(autouse=True)
def _our_log_reaches_caplog() -> None:
    """Once a test has registered the plugin, our logger is below vLLM's, which passes nothing on to the root logger;
    and packages that vLLM's front end imports raise the root logger's level."""
    ours, root = logging.getLogger("dotllm"), logging.getLogger()
    if ours.parent is not root or root.level != logging.WARNING:
        ours.parent = root
        root.setLevel(logging.WARNING)  # (this also clears the levels that a thousand loggers have cached)


@pytest.fixture(scope="session")
def shared_data() -> Path | None:
    """The folder of data of others (see its README), or None if it is not next to the repository."""
    return SHARED_DATA if SHARED_DATA.is_dir() else None


@pytest.fixture(scope="session")
def tekken_json(shared_data: Path | None) -> bytes | None:
    """``tokenizer.json`` of the 131,072-token tekken vocabulary, if the data contain it."""
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
    """The demo model, or with ``VOCABULARY=large`` a model with the tekken vocabulary."""
    from dotllm.demo import model

    if os.environ.get("VOCABULARY") != "large":
        return demo_model
    tekken_json = request.getfixturevalue("tekken_json")
    assert tekken_json is not None, "the folder of data has no tekken vocabulary"
    return model.make_with_tokenizer(tmp_path_factory.mktemp("tekken") / "model", tekken_json, eos_token="</s>")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(URL, process) of a real Redis server, for one test."""
    with redis_process.running(tmp_path) as server:
        yield server
