"""Settings of the plugin, from the environment, which all of vLLM's processes inherit (see `dotllm.cli.options`)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import lru_cache

from dotllm.compilation.metrics import DIRECTORY_VARIABLE
from dotllm.compilation.options import CompilationOptions, describe
from dotllm.suggestions import did_you_mean
from dotllm.vllm_plugin import tiers

logger = logging.getLogger(__name__)

BACKEND = "dotllm"
"""What we write into a request as its backend. vLLM's configuration has no name for us: ``auto`` means dotllm."""

ORDER, ADDITIONAL = "DOTLLM_PROPERTY_ORDER", "DOTLLM_ADDITIONAL_PROPERTIES"
WHITESPACE, DIGITS = "DOTLLM_WHITESPACE", "DOTLLM_NUMBER_DIGITS"
HOW_JSON_IS_WRITTEN = {
    ORDER: ("declared", "any"),  # the order of an object's properties
    ADDITIONAL: ("closed", "open"),  # whether objects that list properties may have others, if the schema does not say
    WHITESPACE: ("formatted", "any"),  # the white space between two tokens
    DIGITS: ("bounded", "any"),  # how long a number may be
}
"""For requests that do not say."""

DEFAULT_BACKEND, GPU_MASKS = "DOTLLM_DEFAULT_BACKEND", "DOTLLM_GPU_MASKS"
END_IN_REASONING, WARNINGS = "DOTLLM_END_IN_REASONING", "DOTLLM_WARNINGS"
COALESCENCE, FINISH = "DOTLLM_COALESCENCE", "DOTLLM_FINISH_WITHIN_MAX_TOKENS"
INSPECT, PREVIEW = "DOTLLM_INSPECT", "DOTLLM_PREVIEW"
_EXTRAS = {
    COALESCENCE: ("off", "canonical"),  # whether forced text is entered (`extra.jump_forward`)
    FINISH: ("off", "on"),  # whether answers end within max_tokens where a request does not say
    INSPECT: ("off", "on"),  # whether the server has the inspector
    PREVIEW: ("off", "on"),  # whether vLLM's own backend answers, while dotllm says what it would refuse
}
"""These need the tier extra, unless they are off."""

VALUES = {
    **HOW_JSON_IS_WRITTEN,
    **_EXTRAS,
    DEFAULT_BACKEND: ("dotllm", "vllm"),  # what vLLM's backend ``auto`` means
    END_IN_REASONING: ("forbid", "allow"),  # of EOS and stop tokens, before the reasoning of an answer has ended
    GPU_MASKS: ("auto", "on", "off"),  # masks live in a table. auto: on CUDA devices; on: everywhere (for tests)
    WARNINGS: ("on", "off"),  # whether a header of each answer says what has no effect in its request
}
"""By variable, its values; empty or unset means the first."""

_OF_KUBERNETES = re.compile(r"(_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_\w+)?)$")
"""The ends of the variables that Kubernetes makes for each service, which may be called dotllm."""


def value(variable: str) -> str:
    """One of the `VALUES` of ``variable``. Raises ValueError for any other, and for an extra while its tier is off."""
    chosen = _chosen(variable, os.environ.get(variable, ""))
    if variable in _EXTRAS and chosen != "off" and tiers.EXTRA not in tiers.chosen():
        raise ValueError(f"{variable}={chosen!r} needs the tier extra, which is off ({tiers.VARIABLE})")
    return chosen


@lru_cache  # every request asks for some of these
def _chosen(variable: str, text: str) -> str:
    values = VALUES[variable]
    chosen = text.strip().lower() or values[0]
    if chosen not in values:
        raise ValueError(f"{variable}={chosen!r}: expected one of {', '.join(values)}")
    return chosen


def is_ours(backend: str | None) -> bool:
    """Whether dotllm serves the requests of a server configured with ``backend``."""
    return backend == "auto" and value(DEFAULT_BACKEND) == "dotllm" and value(PREVIEW) == "off"


def require_values(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ValueError, which names the variable, if one has a wrong value."""
    CompilationOptions.from_environment(environment)
    tiers.chosen()
    for variable in VALUES:
        value(variable)


def known() -> frozenset[str]:
    """All variables of dotllm's."""
    return frozenset({tiers.VARIABLE, *VALUES, *(variable for variable, *_ in describe()), DIRECTORY_VARIABLE})


def check(environment: Mapping[str, str] = os.environ) -> None:
    """`require_values`, and warn of variables that do not exist."""
    require_values(environment)
    for name in sorted(set(environment) - known()):
        if name.startswith("DOTLLM_") and not _OF_KUBERNETES.search(name):
            hint = did_you_mean(name, known()) or "`dotllm serve --help` lists dotllm's"
            logger.warning("there is no variable %s; %s", name, hint)
