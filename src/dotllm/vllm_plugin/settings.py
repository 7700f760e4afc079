"""Settings of the plugin, from the environment, which all of vLLM's processes inherit (see `dotllm.cli.options`)."""

from __future__ import annotations

import os

from dotllm import renamed

BACKEND = "dotllm"
"""What we write into a request as its backend. In vLLM's configuration we have no name: dotllm is what ``auto`` means.
"""

PLUGIN_NAME = "dotllm"
"""Of our entry point, which vLLM loads."""

PROPERTY_ORDERS = ("declared", "any")
"""Orders of an object's properties; the first is the default."""

WHITESPACE = ("formatted", "any")
"""What stands between two tokens of JSON; the first is the default."""

_OURS = ("dotllm", "on", "1", "true", "yes")
_VLLMS = ("vllm", "off", "0", "false", "no")


def allow_plugin() -> None:
    """Add ourselves to ``VLLM_PLUGINS`` where the user lists vLLM's plugins: who imports or runs dotllm means us."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN_NAME not in allowed.split(","):
        os.environ["VLLM_PLUGINS"] = ",".join(name for name in (*allowed.split(","), PLUGIN_NAME) if name)


def choice(variable: str, *values: str) -> str:
    """A variable that names one of ``values``; empty or unset means the first."""
    value = os.environ.get(variable, "").strip().lower() or values[0]
    if value not in values:
        raise ValueError(f"{variable}={value!r}: expected one of {', '.join(values)}")
    return value


def coalescence() -> str:
    """off or canonical: see `dotllm.vllm_plugin.jump_forward`. Raises ValueError for another mode."""
    variable = "DOTLLM_COALESCENCE"
    if os.environ.get(variable, "").strip().lower() == "lossless":
        raise ValueError(
            f"{variable}=lossless (--dotllm-coalescence lossless) is gone: it slowed all requests of a server down. "
            "Use canonical, which enters forced text in one spelling, or off"
        )
    return choice(variable, "off", "canonical")


def property_order() -> str:
    """declared or any: the order of properties where a request does not say (``DOTLLM_PROPERTY_ORDER``)."""
    return choice("DOTLLM_PROPERTY_ORDER", *PROPERTY_ORDERS)


def whitespace() -> str:
    """formatted or any: the white space of JSON where a request does not say (``DOTLLM_WHITESPACE``)."""
    return choice("DOTLLM_WHITESPACE", *WHITESPACE)


def finishes() -> bool:
    """Whether answers end within max_tokens where a request does not say (``DOTLLM_FINISH_WITHIN_MAX_TOKENS``)."""
    return choice("DOTLLM_FINISH_WITHIN_MAX_TOKENS", "off", "on") == "on"


def ends_in_reasoning() -> bool:
    """Whether EOS or a stop token may end an answer before its reasoning has ended (``DOTLLM_END_IN_REASONING``)."""
    return choice("DOTLLM_END_IN_REASONING", "forbid", "allow") == "allow"


def gpu_masks() -> str:
    """Where masks live. auto: in a table on CUDA devices; on: everywhere (for tests); off: vLLM's bitmasks."""
    return choice("DOTLLM_GPU_MASKS", "auto", "on", "off")


def inspects() -> bool:
    """Whether a server has the inspector (``DOTLLM_INSPECT``)."""
    return choice("DOTLLM_INSPECT", "off", "on") == "on"


def takes_auto() -> bool:
    """Whether vLLM's backend ``auto`` means dotllm (``DOTLLM_DEFAULT_BACKEND``: dotllm or vllm).

    A switch is understood too, as the old name of the variable has one: on, 1, true, yes or off, 0, false, no.
    """
    value, variable = renamed.read(os.environ, "DOTLLM_DEFAULT_BACKEND")
    value = value.strip().lower() or "dotllm"
    if value not in (*_OURS, *_VLLMS):
        raise ValueError(f"{variable}={value!r}: expected dotllm or vllm")
    return value in _OURS


def is_ours(backend: str | None) -> bool:
    """Whether requests of a server configured with ``backend`` are served by dotllm."""
    return backend == "auto" and takes_auto()
