"""In which steps forced text is entered: a static rule over vLLM's own settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dotllm.vllm_plugin.vllm_types import CompilationConfig


class Found(NamedTuple):
    """Forced text of one request."""

    position: int
    """in the results of the step"""
    grammar: Any
    """its `RequestGrammar`"""
    tokens: Sequence[int]
    steps_saved: int


class Rule:
    """Whether the steps that are saved outweigh a longer one.

    A step that runs several tokens of a request is like one that runs a prompt: it fits none of vLLM's graphs of whole
    steps ("full"), and launches its attention itself. That takes about half as long again, for all requests of the
    batch, so together they must save more steps than there are requests. (Those that are not entered go on token by
    token, and are asked again in the next step, together with others that have come to forced text meanwhile.) The
    longer step costs nothing where a prompt is run anyway, nor where both kinds of steps have graphs of one kind.

    A step never becomes longer than vLLM's largest graph on account of forced text, unless it has none as it is.
    """

    def __init__(self, config: CompilationConfig) -> None:
        mode = config.cudagraph_mode
        self._graph_tokens = config.max_cudagraph_capture_size or 0
        self._costs = bool(self._graph_tokens and mode and mode.decode_mode() != mode.mixed_mode())

    def __call__(self, found: Sequence[Found], running: int, *, prompt_comes: bool) -> Sequence[Found]:
        """Those of ``found`` that are worth it, with ``running`` requests; prompt_comes: the next step runs one."""
        if 0 < running <= self._graph_tokens:
            found = _fitting(found, self._graph_tokens - running)
        if not self._costs or prompt_comes or sum(one.steps_saved for one in found) > running:
            return found
        return ()


def _fitting(found: Sequence[Found], room: int) -> Sequence[Found]:
    """As many as fit into ``room`` tokens, beside the one that each request has anyway; the longest first."""
    if sum(len(one.tokens) - 1 for one in found) <= room:
        return found
    fitting = []
    for one in sorted(found, key=lambda one: -one.steps_saved):
        if len(one.tokens) - 1 <= room:
            room -= len(one.tokens) - 1
            fitting.append(one)
    return fitting
