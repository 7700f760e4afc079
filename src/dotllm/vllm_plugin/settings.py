"""Settings of the plugin, from the environment, which all of vLLM's processes inherit (see `dotllm.cli.options`)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from dotllm.compilation.metrics import DIRECTORY_VARIABLE
from dotllm.compilation.options import CompilationOptions, describe
from dotllm.suggestions import did_you_mean
from dotllm.vllm_plugin import tiers

logger = logging.getLogger(__name__)

BACKEND = "dotllm"
"""What we write into a request as its backend. vLLM's configuration has no name for us: ``auto`` means dotllm."""

PLUGIN_NAME = "dotllm"
"""The name of our entry point, which vLLM loads."""

ORDER, ADDITIONAL = "DOTLLM_PROPERTY_ORDER", "DOTLLM_ADDITIONAL_PROPERTIES"
WHITESPACE, DIGITS = "DOTLLM_WHITESPACE", "DOTLLM_NUMBER_DIGITS"
HOW_JSON_IS_WRITTEN = {
    ORDER: ("declared", "any"),  # the order of an object's properties
    ADDITIONAL: ("closed", "open"),  # whether objects that list properties may have others, if the schema does not say
    WHITESPACE: ("formatted", "any"),  # the white space between two tokens
    DIGITS: ("bounded", "any"),  # how long a number may be
}
"""By variable, the values for requests that do not say; the first is the default."""


def allow_plugin() -> None:
    """Add dotllm to ``VLLM_PLUGINS`` if the user lists vLLM's plugins: importing or running dotllm means using it.

    Also add our variables to those that vLLM copies to the processes that Ray starts on any node
    (``--data-parallel-backend ray``), because these inherit nothing."""
    if "VLLM_PLUGINS" in os.environ:
        _add("VLLM_PLUGINS", PLUGIN_NAME)
    _add("VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", "DOTLLM_")


def _add(variable: str, name: str) -> None:
    """Add ``name`` to a list in the environment."""
    names = os.environ.get(variable, "").split(",")
    if name not in map(str.strip, names):
        os.environ[variable] = ",".join(hook for hook in (*names, name) if hook)


def choice(variable: str, *values: str) -> str:
    """The value of ``variable``, one of ``values``; empty or unset means the first. Raises ValueError for any other."""
    return _chosen(variable, os.environ.get(variable, ""), values)


@lru_cache  # every request asks for some of these
def _chosen(variable: str, text: str, values: tuple[str, ...]) -> str:
    value = text.strip().lower() or values[0]
    if value not in values:
        raise ValueError(f"{variable}={value!r}: expected one of {', '.join(values)}")
    return value


def _of_extra(variable: str, value: str) -> str:
    """``value``, of a variable that turns an extra on. Raises ValueError if it does so while the tier extra is off."""
    if value != "off" and tiers.EXTRA not in tiers.chosen():
        raise ValueError(f"{variable}={value!r} needs the tier extra, which is off ({tiers.VARIABLE})")
    return value


def coalescence() -> str:
    """off or canonical: see `dotllm.vllm_plugin.extra.jump_forward`. Raises ValueError for another mode."""
    variable = "DOTLLM_COALESCENCE"
    if os.environ.get(variable, "").strip().lower() == "lossless":
        raise ValueError(
            f"{variable}=lossless (--dotllm-coalescence lossless) was removed: it slowed down all requests of a "
            "server. Use canonical, which enters forced text in one spelling, or off"
        )
    return _of_extra(variable, choice(variable, "off", "canonical"))


def written(variable: str) -> str:
    """The server's value of one of `HOW_JSON_IS_WRITTEN`. Raises ValueError for any other."""
    return choice(variable, *HOW_JSON_IS_WRITTEN[variable])


def finishes() -> bool:
    """Whether answers end within max_tokens where a request does not say (``DOTLLM_FINISH_WITHIN_MAX_TOKENS``)."""
    variable = "DOTLLM_FINISH_WITHIN_MAX_TOKENS"
    return _of_extra(variable, choice(variable, "off", "on")) == "on"


def ends_in_reasoning() -> bool:
    """Whether EOS or a stop token may end an answer before its reasoning has ended (``DOTLLM_END_IN_REASONING``)."""
    return choice("DOTLLM_END_IN_REASONING", "forbid", "allow") == "allow"


def gpu_masks() -> str:
    """Where masks live. auto: in a table on CUDA devices; on: everywhere (for tests); off: vLLM's bitmasks."""
    return choice("DOTLLM_GPU_MASKS", "auto", "on", "off")


def inspects() -> bool:
    """Whether a server has the inspector (``DOTLLM_INSPECT``)."""
    return _of_extra("DOTLLM_INSPECT", choice("DOTLLM_INSPECT", "off", "on")) == "on"


def warns() -> bool:
    """Whether a header of each answer says what has no effect in its request (``DOTLLM_WARNINGS``)."""
    return choice("DOTLLM_WARNINGS", "on", "off") == "on"


def takes_auto() -> bool:
    """Whether vLLM's backend ``auto`` means dotllm (``DOTLLM_DEFAULT_BACKEND``: dotllm or vllm)."""
    return choice("DOTLLM_DEFAULT_BACKEND", "dotllm", "vllm") == "dotllm" and not previews()


def previews() -> bool:
    """Whether vLLM's own backend answers, while dotllm says what it would refuse (``DOTLLM_PREVIEW``)."""
    return _of_extra("DOTLLM_PREVIEW", choice("DOTLLM_PREVIEW", "off", "on")) == "on"


def is_ours(backend: str | None) -> bool:
    """Whether dotllm serves the requests of a server configured with ``backend``."""
    return backend == "auto" and takes_auto()


READERS: dict[str, Callable[[], object]] = {
    tiers.VARIABLE: tiers.chosen,
    "DOTLLM_DEFAULT_BACKEND": takes_auto,
    "DOTLLM_COALESCENCE": coalescence,
    "DOTLLM_FINISH_WITHIN_MAX_TOKENS": finishes,
    "DOTLLM_END_IN_REASONING": ends_in_reasoning,
    "DOTLLM_GPU_MASKS": gpu_masks,
    "DOTLLM_INSPECT": inspects,
    "DOTLLM_PREVIEW": previews,
    "DOTLLM_WARNINGS": warns,
    **{variable: partial(written, variable) for variable in HOW_JSON_IS_WRITTEN},
}
"""By variable of the plugin, the function that reads it, and raises ValueError for a wrong value."""
_OF_KUBERNETES = re.compile(r"(_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_\w+)?)$")
"""The ends of the variables that Kubernetes makes for each service, which may be called dotllm."""


def known() -> frozenset[str]:
    """All variables of dotllm's."""
    return frozenset({*READERS, *(variable for variable, *_ in describe()), DIRECTORY_VARIABLE})


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ValueError, which names the variable, if one has a wrong value; warn of variables that do not exist."""
    CompilationOptions.from_environment(environment)
    for reader in READERS.values():
        reader()
    for name in sorted(set(environment) - known()):
        if name.startswith("DOTLLM_") and not _OF_KUBERNETES.search(name):
            hint = did_you_mean(name, known()) or "`dotllm serve --help` lists dotllm's"
            logger.warning("there is no variable %s; %s", name, hint)
