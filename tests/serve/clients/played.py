"""``python -m tests.serve.clients.played MODEL PORT [FLAG…]``: the played server of tests/vllm_plugin, on a port.

vLLM's front end is real; the engine is a random walk under each request's masks. So every client is answered instantly,
with the oddest documents that its schema allows, and prompts may be as long as those of coding agents.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvicorn

from dotllm.demo import trained
from tests.vllm_plugin import played_server

if __name__ == "__main__":
    model, port, *more = sys.argv[1:]
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    played_server.NAME = "demo"
    flags = ("--max-model-len", "131072", "--chat-template", str(trained.TOOLS_TEMPLATE), *more)
    with played_server.started(Path(model), *flags) as server:
        config = uvicorn.Config(server.app, host="127.0.0.1", port=int(port), log_level="warning")
        server.run(uvicorn.Server(config).serve())
