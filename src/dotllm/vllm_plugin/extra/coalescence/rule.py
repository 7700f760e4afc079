"""In which steps forced text is entered: a static rule over vLLM's own settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dotllm.vllm_plugin.vllm_types import CompilationConfig, ModelConfig


class Found(NamedTuple):
    """Forced text of one request."""

    position: int
    """in the results of the step"""
    grammar: Any
    """its `RequestGrammar`"""
    tokens: Sequence[int]
    steps_saved: int


NARROW = 2048
"""The hidden size below which a layer takes the GPU less time than the host takes to launch it."""
STEPS_WIDE, STEPS_NARROW = 2, 3
"""Steps of every request that one of them must save: the cost of a longer step, and some more, because waiting requests
meet others. A narrow model's step is short and the host sets its pace, so launching a longer one takes two or three
more."""


class Rule:
    """Whether the steps that are saved outweigh a longer one.

    A step that runs several tokens of a request is like one that runs a prompt: it fits none of vLLM's graphs of whole
    steps ("full"), and launches its attention itself. That takes longer for all requests of the batch, so together they
    must save `STEPS_WIDE` or `STEPS_NARROW` times as many steps as there are requests. (Those that are not entered go
    on token by token, and are asked again in the next step, together with others that have come to forced text
    meanwhile.) The longer step costs nothing where a prompt is run anyway, nor where both kinds of steps have graphs of
    one kind.

    A step never becomes longer than vLLM's largest graph on account of forced text, unless it has none as it is. So
    many requests cannot save enough, and nobody looks (`may_pay`).
    """

    def __init__(self, compilation: CompilationConfig, model: ModelConfig) -> None:
        mode = compilation.cudagraph_mode
        self._graph_tokens = compilation.max_cudagraph_capture_size or 0
        costs = self._graph_tokens and mode and mode.decode_mode() != mode.mixed_mode()
        self._steps = (STEPS_NARROW if model.get_hidden_size() < NARROW else STEPS_WIDE) if costs else 0

    def may_pay(self, running: int, *, prompt_comes: bool) -> bool:
        """Whether ``running`` requests may save enough; prompt_comes: the next step runs one."""
        return self._room(running) > (0 if prompt_comes else self._steps * running)

    def __call__(self, found: Sequence[Found], running: int, *, prompt_comes: bool) -> Sequence[Found]:
        """Those of ``found`` that are worth it; else as `may_pay`."""
        found = _fitting(found, self._room(running))
        saved = sum(one.steps_saved for one in found)
        return found if saved > (0 if prompt_comes else self._steps * running) else ()

    def _room(self, running: int) -> float:
        """Tokens that the step may run in addition to the one of each request."""
        return self._graph_tokens - running if running <= self._graph_tokens else math.inf


def _fitting(found: Sequence[Found], room: float) -> Sequence[Found]:
    """As many as fit into ``room`` tokens, in addition to the one that each request has anyway; the longest first."""
    if sum(len(one.tokens) - 1 for one in found) <= room:
        return found
    fitting = []
    for one in sorted(found, key=lambda one: -one.steps_saved):
        if len(one.tokens) - 1 <= room:
            room -= len(one.tokens) - 1
            fitting.append(one)
    return fitting
