"""``python -m tests.serve.clients.played MODEL PORT [FLAG…]``: the played server of tests/vllm_plugin, on a port.

vLLM's front end is real; the engine is a random walk under each request's masks. So every client is answered instantly,
with the oddest documents that its schema allows, and prompts may be as long as those of coding agents. With
``--reasoning-parser`` it thinks before every answer.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from dotllm.demo import trained
from tests.serve import api_model
from tests.vllm_plugin import played_server


def thinking(folder: Path, model: Path) -> Path:
    """A copy of ``model`` without weights, whose tokenizer has the marks of thoughts and calls."""
    from tokenizers import Tokenizer

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([*api_model.MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


if __name__ == "__main__":
    model, port, *more = sys.argv[1:]
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    played_server.NAME = "demo"
    flags = ("--max-model-len", "131072", "--chat-template", str(trained.TOOLS_TEMPLATE), *more)
    with (
        TemporaryDirectory() as folder,
        played_server.started(thinking(Path(folder) / "model", Path(model)), *flags) as server,
    ):
        config = uvicorn.Config(server.app, host="127.0.0.1", port=int(port), log_level="warning")
        server.run(uvicorn.Server(config).serve())
