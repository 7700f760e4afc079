"""How many cases of one class a test tries: an eighth in `make test`, all of them with ``CASES=all`` (`make test-all`).

Cases are of one class if only a seed or a random moment tells them apart, or what Hypothesis draws, or a place in a
list of the same kind. Tests of named faults have no such cases: they always run. Hypothesis draws other examples in each
run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

EVERY = os.environ.get("CASES") == "all"
SHARE = 8
Case = TypeVar("Case")


def few(count: int) -> int:
    """How many of ``count`` seeds or examples to try; at least one."""
    return count if EVERY else -(-count // SHARE)


def sample(cases: Sequence[Case]) -> Sequence[Case]:
    """Every eighth of ``cases``, from the first."""
    return cases if EVERY else cases[::SHARE]
