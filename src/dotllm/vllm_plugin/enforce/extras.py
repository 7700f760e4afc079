"""The hooks of the tier extra register here what the core may call; the core imports none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager, VllmConfig

SpellingOf = Callable[[Any], Any]
"""Returns the `ForcedSpelling` of an index."""


@dataclass
class Given:
    """The extras of this process."""

    limit: Callable[[StructuredOutputManager, Request, int], Any] | None = None
    """Makes the `AnswerLimit` of a request whose answer must end in time."""
    spelling: Callable[[VllmConfig], Callable[[Request], SpellingOf | None]] | None = None
    """Returns, for an engine, how a request's forced text is spelt; None: as the model chooses (`jump_forward`)."""


GIVEN = Given()
