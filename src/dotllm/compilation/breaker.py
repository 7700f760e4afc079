"""Circuit breaker (M. Nygard, "Release It!"): after some failures in a row, stop calling for a while.

Closed: calls go through. Open: no call goes through until the pause is over. Then one probe does: its success closes
the breaker, and its failure doubles the pause.
"""

from __future__ import annotations

import threading

FAILURES = 3
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0


class CircuitBreaker:
    """Thread-safe. Callers pass the time (``now``, of `time.monotonic`), so that tests need not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE_S
        self._open_until = 0.0
        self._probing = False

    def allow(self, now: float) -> bool:
        """Whether a call may be made now. A caller that gets True must report `success`, `failure` or `unknown`."""
        with self._lock:
            if self._failures < FAILURES:
                return True
            if now < self._open_until or self._probing:
                return False
            self._probing = True
            return True

    def would_probe(self, now: float) -> bool:
        """Whether `allow` would say True, without claiming the probe."""
        return self._failures < FAILURES or (now >= self._open_until and not self._probing)

    def success(self) -> None:
        """The call worked."""
        with self._lock:
            self._failures = 0
            self._pause = FIRST_PAUSE_S
            self._probing = False

    def failure(self, now: float) -> bool:
        """The call failed. True if that opened the breaker (worth a line in the log)."""
        with self._lock:
            self._failures += 1
            if self._failures < FAILURES:
                return False
            opened = self._failures == FAILURES
            if self._probing:
                self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
            self._probing = False
            self._open_until = now + self._pause
            return opened

    def unknown(self) -> None:
        """The caller gave up before the call could succeed or fail."""
        with self._lock:
            self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are being held back (or only a probe is let through)."""
        return self._failures >= FAILURES
