"""Our log lines in vLLM's log: same handlers, same format, same level, in every process."""

from __future__ import annotations

import logging


def join_vllm() -> None:
    """Give the logger ``dotllm`` what vLLM's has, unless somebody has configured it."""
    ours = logging.getLogger("dotllm")
    if ours.handlers or ours.level != logging.NOTSET:
        return
    theirs = logging.getLogger("vllm")
    if theirs.handlers:
        ours.handlers = list(theirs.handlers)
        ours.setLevel(theirs.level)
        ours.propagate = False
