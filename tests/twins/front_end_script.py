"""Run by `front_end.fresh` in a separate process: plain vLLM's front end on a played engine core.

python -m tests.twins.front_end_script MODEL      prints RESULT and the list of requests with their answers
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(model: str) -> None:
    """See the module."""
    import dotllm

    assert dotllm
    os.environ["VLLM_PLUGINS"] = ""  # (importing dotllm has added our plugin)
    from tests.twins import front_end
    from tests.vllm_plugin import played_server

    with played_server.started(Path(model), plugin=False) as server:
        described = front_end.ask(server, {"path": "/openapi.json"})["body"]
        rows = [[case, front_end.ask(server, case)] for case in front_end.requests(described)]
    print("RESULT " + json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
