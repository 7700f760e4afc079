"""The blocks of README and docs/ that talk to a server."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.demo.server import Server
from tests import documentation
from tests.documentation import Block
from tests.serve.conftest import NAME

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("blocks", documentation.blocks("server").items(), ids=lambda item: item[0])
def test_blocks_run(blocks: tuple[str, list[Block]], users_server: Server, users_client: Any) -> None:
    names: dict[str, object] = {
        "client": users_client,
        "MODEL": NAME,
        "messages": [{"role": "user", "content": "How are you?"}],
        "schema": {"type": "json_schema", "json_schema": {"name": "mood", "schema": {"enum": ["well", "ill"]}}},
    }
    for block in blocks[1]:
        here = block.code.replace("http://localhost:8000", users_server.url).replace("Qwen/Qwen3-8B", NAME)
        block._replace(code=here).run(names)
