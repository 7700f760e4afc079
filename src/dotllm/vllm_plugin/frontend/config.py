"""vLLM's configuration accepts an option for the whole server that it reserves for other backends.

``StructuredOutputsConfig`` is a pydantic dataclass whose validator refuses ``disable_any_whitespace`` unless xgrammar
or guidance is named. This hook makes the validator accept the option for servers on dotllm (backend ``auto``). When
vLLM loads plugins, ``VllmConfig`` and other classes have already built their validators from this function. So we keep
the function object and replace its code: the new code calls ours, and ours calls a copy of the original.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import is_ours

_MODULE = "vllm.config.structured_outputs"
_VALIDATOR = "_validate_structured_output_config"
AUTO = "auto"

_original: Any = None


def allow_options() -> None:
    """Let a server on dotllm set ``disable_any_whitespace``. Idempotent."""
    global _original
    if not is_ours(AUTO) or _is_allowed():
        return
    from vllm.config.structured_outputs import StructuredOutputsConfig

    function = StructuredOutputsConfig.__pydantic_decorators__.model_validators[_VALIDATOR].func
    if not isinstance(function, FunctionType) or function.__closure__ is not None:
        raise TypeError("the validator of StructuredOutputsConfig is no plain function")
    _original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    function.__code__ = _replacement.__code__
    if not _is_allowed():
        raise TypeError("StructuredOutputsConfig still refuses disable_any_whitespace")


def _replacement(self: Any) -> Any:
    from dotllm.vllm_plugin.frontend.config import validate  # (it runs with vLLM's globals)

    return validate(self)


def validate(config: Any) -> Any:
    """What vLLM's validator does now."""
    return config if is_ours(config.backend) else _original(config)


def _is_allowed() -> bool:
    from vllm.config.structured_outputs import StructuredOutputsConfig

    try:
        StructuredOutputsConfig(backend=AUTO, disable_any_whitespace=True)
    except ValueError:  # pydantic's ValidationError is one
        return False
    return True


HOOK = Hook(
    name="backend-options",
    summary="disable_any_whitespace may be set for the whole server",
    targets=(Target(_MODULE, f"StructuredOutputsConfig.{_VALIDATOR}", ("self",)),),
    apply=allow_options,
    without_it="set disable_any_whitespace in each request instead",
)
