"""Our log lines in vLLM's log: same handlers, same format, same level, in every process."""

from __future__ import annotations

import logging


def join_vllm() -> None:
    """Make the logger ``dotllm`` a child of vLLM's, unless somebody has configured it.

    vLLM sets up its own logger later than it loads plugins (it parses the command line first), so copying its handlers
    here would copy nothing.
    """
    ours = logging.getLogger("dotllm")
    if not ours.handlers and ours.level == logging.NOTSET:
        ours.parent = logging.getLogger("vllm")
