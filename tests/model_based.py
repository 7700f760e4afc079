"""Settings of the model-based tests: Hypothesis state machines, each with a simple model of the object that it drives.

`make test` runs the same sequences each time; `make model-test EXAMPLES=10000` runs that many new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.cases import few


def sequences(in_ci: int, steps: int) -> settings:
    """``in_ci`` sequences of at most ``steps`` steps; the variable EXAMPLES overrides their number."""
    asked = os.environ.get("EXAMPLES")
    return settings(
        max_examples=int(asked or few(in_ci)),
        stateful_step_count=steps,
        derandomize=not asked,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        report_multiple_bugs=False,
    )
