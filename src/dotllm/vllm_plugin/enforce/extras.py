"""What extras give to the core where their hooks have been applied: the core imports none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager, VllmConfig

SpellingOf = Callable[[Any], Any]
"""By index its `ForcedSpelling`."""


@dataclass
class Given:
    """The extras of this process."""

    limit: Callable[[StructuredOutputManager, Request, int], Any] | None = None
    """Makes the `AnswerLimit` of a request whose answer is to end in time."""
    spelling: Callable[[VllmConfig], Callable[[Request], SpellingOf | None]] | None = None
    """By an engine's configuration, and by request: how forced text is spelt, where it is (`jump_forward`)."""


GIVEN = Given()
