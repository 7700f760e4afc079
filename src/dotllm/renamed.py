"""Names of the last release that still work beside the names that have taken their place.

They end with the next release: then this file goes, with its few uses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

logger = logging.getLogger(__name__)

VARIABLES = {
    "DOTLLM_CACHE_MEMORY_BYTES": "DOTLLM_MEMORY_BYTES",
    "DOTLLM_COMPILE_PROCESSES": "DOTLLM_HEAVY_PROCESSES",
    "DOTLLM_DEFAULT_BACKEND": "DOTLLM_TAKE_AUTO",
    "DOTLLM_MAX_PINNED_BYTES": "DOTLLM_HELD_BYTES",
    "DOTLLM_STORE_WRITE_INTERVAL": "DOTLLM_WARM_INTERVAL",
    "DOTLLM_SUBPROCESS_THRESHOLD_BYTES": "DOTLLM_HEAVY_BYTES",
}
"""New name of an environment variable → old one. Flags and keys of the ``--config`` file follow from these."""
METRICS = {
    "dotllm_cache_entries_ignored": "dotllm_rejected_entries",
    "dotllm_index_lookups": "dotllm_requests",
    "dotllm_pinned_index_bytes": "dotllm_held_bytes",
    "dotllm_request_stall_seconds": "dotllm_held_seconds",
    "dotllm_requests_waiting": "dotllm_waiting_requests",
}
"""New name of a metric → old one, under which ``/metrics`` shows it as well."""


def flag_of(variable: str) -> str:
    """The flag that becomes the environment variable ``variable``."""
    return "--dotllm-" + variable.removeprefix("DOTLLM_").lower().replace("_", "-")


FLAGS = {flag_of(old): flag_of(new) for new, old in VARIABLES.items()}
"""Old flag → new one."""


def read(environment: Mapping[str, str], variable: str) -> tuple[str, str]:
    """(Value of ``variable`` or of its old name, the name that has it); ("", ``variable``) if neither is set."""
    old = VARIABLES.get(variable)
    if environment.get(variable) or old is None or not environment.get(old):
        return environment.get(variable, ""), variable
    warn(old, variable)
    return environment[old], old


@cache
def warn(old: str, new: str) -> None:
    """Say once per process that ``old`` is another's name now."""
    logger.warning("%s is now %s; the old name works until the next release", old, new)
