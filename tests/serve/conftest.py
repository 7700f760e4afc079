"""One real server for all tests of this folder: vLLM on the CPU, a model with random weights, the backend left at
auto.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo.server import Server

NAME = "random"


@pytest.fixture(scope="session")
def server(large_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    flags = ("--max-model-len", "8192", "--max-num-batched-tokens", "1024")
    environment = {"DOTLLM_DISK_BYTES": "0"}  # every index is compiled here and now
    with Server(large_model, directory / "log", name=NAME, flags=flags, environment=environment) as running:
        running.wait()
        yield running
        assert running.healthy(), f"the server did not survive its tests:\n{running.log_tail(60)}"


@pytest.fixture(scope="session")
def client(server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300.0, max_retries=0)
