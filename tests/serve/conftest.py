"""Real servers for all tests of this folder: vLLM on the CPU, a model with random weights, the backend left at auto.

``server`` is plain. ``api_server`` has a tool parser and a reasoning parser, and so has ``users_server``, which starts
like a user's (see `zygote`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.cli import demo
from dotllm.demo import trained
from dotllm.demo.server import Server
from tests.conftest import ROOT
from tests.serve import api_model, zygote

NAME = "random"
MODEL = ROOT / ".cache" / "models" / trained.NAME
API_FLAGS = (
    *("--max-model-len", "4096", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--reasoning-parser", "qwen3", "--default-chat-template-kwargs", '{"enable_thinking": false}'),
    "--enable-scale-out",
    *("--structured-outputs-config.disable_any_whitespace", "true"),  # a random model likes white space
)


@pytest.fixture(scope="session")
def server(plain_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    flags = ("--max-model-len", "8192", "--max-num-batched-tokens", "1024")
    # The server compiles every index itself, large ones in processes.
    environment = {"DOTLLM_DISK_BYTES": "0", "DOTLLM_COMPILE_PROCESSES": "2"}
    with zygote.Server(plain_model, directory / "log", name=NAME, flags=flags, environment=environment) as running:
        running.wait()
        yield running
        assert running.healthy(), f"the server did not survive its tests:\n{running.log_tail(60)}"


@pytest.fixture(scope="session")
def client(server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300.0, max_retries=0)


@pytest.fixture(scope="session")
def api_server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environment = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}  # for background responses
    yield from with_parsers(zygote.Server, demo_model, tmp_path_factory.mktemp("api"), environment)


@pytest.fixture(scope="session")
def users_server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from with_parsers(Server, demo_model, tmp_path_factory.mktemp("users"), {})


def with_parsers(
    kind: type[Server], demo_model: Path, directory: Path, environment: dict[str, str]
) -> Iterator[Server]:
    """A server of this kind, with a tool parser and a reasoning parser."""
    model, variables = api_model.make(directory / "model", demo_model), {"DOTLLM_DISK_BYTES": "0", **environment}
    with kind(model, directory / "log", name=NAME, flags=API_FLAGS, environment=variables) as running:
        running.wait()
        yield running
        assert running.healthy(), f"the server did not survive its tests:\n{running.log_tail(60)}"


@pytest.fixture(scope="session")
def openai_client(api_server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{api_server.url}/v1", api_key="none", timeout=120.0, max_retries=0)


@pytest.fixture(scope="session")
def users_client(users_server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{users_server.url}/v1", api_key="none", timeout=120.0, max_retries=0)


@pytest.fixture(scope="session")
def anthropic_client(api_server: Server) -> Any:
    from anthropic import Anthropic

    return Anthropic(base_url=api_server.url, api_key="none", timeout=120.0, max_retries=0)


@pytest.fixture(scope="session")
def trained_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        model = trained.make(MODEL)
    except trained.ModelUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    flags = (
        "--kv-cache-memory-bytes",
        str(1 << 30),
        *demo.FLAGS,
        "--chat-template",
        str(trained.TOOLS_TEMPLATE),
        *demo.precision(),
    )
    log = tmp_path_factory.mktemp("trained") / "log"
    with zygote.Server(model, log, name="demo", flags=flags) as running:
        running.wait()
        yield running
        assert running.healthy(), f"the server did not survive its tests:\n{running.log_tail(60)}"
