"""A stand-in for the results of vLLM's V2 runner, whose tokens may arrive before they are read (`speed.look_ahead`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np


def async_output(names: list[str], sampled: Sequence[list[int]], arrived: Callable[[], bool]) -> Any:
    """The `AsyncOutput` of a step that sampled these tokens, at most one for each request."""
    return SimpleNamespace(
        copy_event=SimpleNamespace(query=arrived),
        sampled_token_ids=np.array([[*own, 0][:1] for own in sampled], np.int64).reshape(-1, 1),
        num_sampled_tokens_np=np.array([len(own) for own in sampled], np.int32),
        model_runner_output=SimpleNamespace(req_ids=names),
    )
