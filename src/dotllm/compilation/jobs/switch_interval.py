"""How often threads hand over the GIL (``sys.setswitchinterval``), while a compile runs beside the engine's loop."""

from __future__ import annotations

import sys

SLOW_SWITCH_INTERVAL_S = 0.0005  # seconds, while a compile takes long


class SwitchInterval:
    """While a compile takes long, threads hand over the GIL ten times as often: the engine's loop needs it some dozen
    times a step, and waits a switch interval each time (figures: docs/decisions/compilation.md)."""

    def __init__(self) -> None:
        self._ordinary: float | None = None

    @property
    def is_short(self) -> bool:
        """Whether it is shorter than it was."""
        return self._ordinary is not None

    def set(self, *, short: bool) -> None:
        """Shorten or restore it."""
        if short and self._ordinary is None:
            self._ordinary = sys.getswitchinterval()
            sys.setswitchinterval(min(self._ordinary, SLOW_SWITCH_INTERVAL_S))
        elif not short and self._ordinary is not None:
            sys.setswitchinterval(self._ordinary)
            self._ordinary = None
