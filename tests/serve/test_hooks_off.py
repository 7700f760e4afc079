"""With ``DOTLLM_HOOKS``, a server without the tiers that are off starts, enforces, refuses, and stays alive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo.server import Server
from tests.serve import zygote
from tests.serve.conftest import NAME

pytestmark = pytest.mark.serve
MESSAGES = [{"role": "user", "content": "Say something."}]


@pytest.fixture(scope="module", params=["enforce", "enforce,speed"])
def bare(request: pytest.FixtureRequest, plain_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("bare") / "log"
    environment = {"DOTLLM_HOOKS": request.param, "DOTLLM_DISK_BYTES": "0"}
    with zygote.Server(plain_model, log, name=NAME, flags=("--max-model-len", "512"), environment=environment) as made:
        made.wait()
        yield made
        assert made.healthy(), made.log_tail(60)


def ask(bare: Server, **fields: Any) -> Any:
    from openai import OpenAI

    client = OpenAI(base_url=f"{bare.url}/v1", api_key="none", timeout=300.0, max_retries=0)
    return client.chat.completions.create(
        model=NAME, messages=MESSAGES, extra_body={"structured_outputs": fields} if fields else {}, max_tokens=40
    )


def test_it_enforces(bare: Server) -> None:
    for _ in range(4):
        assert re.fullmatch("[a-c]{3}[0-9]", ask(bare, regex="[a-c]{3}[0-9]").choices[0].message.content)
        assert ask(bare, choice=["red", "green"]).choices[0].message.content in ("red", "green")
    assert ask(bare).choices[0].message.content


def test_it_refuses(bare: Server) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match=r"group|parenthes"):
        ask(bare, regex="(ab")
    assert re.fullmatch("x{3}", ask(bare, regex="x{3}").choices[0].message.content)
