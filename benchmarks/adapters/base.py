"""What the harness asks of an engine: compile a spec, walk one sequence, fill the masks of a batch.

The timed calls (`Matcher.fill`, `Matcher.advance`, `Batch.fill`) are the engine's own functions bound to their
arguments, so that an adapter adds no Python of its own to a sample. Masks are rows of int32 words with 32 tokens each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bitmask = NDArray[np.int32]


class Refused(Exception):
    """The engine refused the spec. The message says why; ``keyword`` names the feature, if the engine does.
    ``unsatisfiable``: the engine says that no text satisfies the spec."""

    def __init__(self, message: str, keyword: str = "") -> None:
        super().__init__(message)
        self.keyword = keyword
        words = ("nothing satisfies", "no text satisfies", "unsatisfiable")
        self.unsatisfiable = any(text in message.lower() for text in words)


@dataclass(frozen=True)
class Spec:
    """A specification, and texts that satisfy it.

    ``kind`` is json_schema (spec: the schema), json_object (None), regex (str), choice (list of str) or grammar
    (``{"lark": …, "ebnf": …}``: the same language twice, for engines that read only one dialect).
    """

    name: str
    kind: str
    spec: Any
    texts: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of a run, the same for all engines."""

    compact: bool = False
    """no white space in JSON, so that allowed sets can be compared; otherwise the engine's flexible white space"""
    threads: int = 1
    """worker threads for batch calls; compilation always gets one"""
    extra: dict[str, Any] = field(default_factory=dict)


class Matcher(Protocol):
    """One sequence."""

    fill: Callable[[], object]
    """writes the mask of the current state into ``bits``"""
    advance: Callable[[int], object]
    """takes one token; falsy if it is not allowed"""
    bits: Bitmask
    """int32 [words]"""


class Batch(Protocol):
    """Many sequences in one call."""

    fill: Callable[[], object]
    """writes all masks into ``bits``"""
    fill_ids: Callable[[], object] | None
    """finds row ids of a shared table instead of copying bits; None if the engine has no such table"""
    advance: Callable[[Sequence[int]], object]
    """one token for each sequence"""
    bits: Bitmask
    """int32 [n, words]"""


class Compiled(Protocol):
    """A spec that an engine has accepted."""

    def matcher(self) -> Matcher:
        """A new sequence at its start."""

    def growth(self) -> dict[str, int]:
        """Sizes that the engine reports (states, rows, bytes); empty if it reports none."""


class Engine(Protocol):
    """One library, set up for one vocabulary."""

    name: str
    version: str
    settings: dict[str, Any]
    """how it is set up, for the report"""

    def compile(self, spec: Spec) -> Compiled:
        """Compile as a server does when the spec is new to it (no cache). Raises `Refused`."""

    def batch(self, matchers: Sequence[Matcher], threads: int | None = None) -> Batch:
        """Bind matchers (of any specs) to one mask buffer."""
