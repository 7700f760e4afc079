"""If a step falls back to vLLM's own masks, dotllm or a test's stand-in has a bug: no test passes in that case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_step_falls_back(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    messages = [record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)]
    assert not [message for message in messages if "could not find the masks of a step in one call" in message]


@pytest.fixture(scope="session")
def played(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """vLLM's front end in this process, with the hermes parser, on a played engine core."""
    pytest.importorskip("vllm")
    from tests.serve import api_model
    from tests.vllm_plugin import played_server

    model = api_model.make(tmp_path_factory.mktemp("played") / "model", demo_model)
    with played_server.started(model) as server:
        yield server


@pytest.fixture(scope="session")
def thinking(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same with a reasoning parser, and a model that thinks before each answer."""
    pytest.importorskip("vllm")
    from tests.serve import api_model
    from tests.vllm_plugin import played_server

    model = api_model.make(tmp_path_factory.mktemp("thinking") / "model", demo_model)
    flags = ("--reasoning-parser", "qwen3", "--default-chat-template-kwargs", '{"enable_thinking": true}')
    with played_server.started(model, *flags) as server:
        yield server
