"""Lets vLLM's configuration accept a server-wide option that it reserves for other backends.

``StructuredOutputsConfig`` is a pydantic dataclass whose validator refuses ``disable_any_whitespace`` unless xgrammar
or guidance is named. This hook makes the validator accept the option for servers on dotllm (backend ``auto``). By the
time vLLM loads plugins, this class and ``VllmConfig``, which holds it, have built their validators, so pydantic
rebuilds them.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original, Target, replace_once
from dotllm.vllm_plugin.settings import is_ours

_MODULE = "vllm.config.structured_outputs"
_VALIDATOR = "_validate_structured_output_config"


def allow_options() -> None:
    """Let a server on dotllm set ``disable_any_whitespace``. Idempotent."""
    from pydantic.dataclasses import rebuild_dataclass
    from vllm.config import VllmConfig
    from vllm.config.structured_outputs import StructuredOutputsConfig

    config_class: Any = StructuredOutputsConfig
    replace_once(config_class.__pydantic_decorators__.model_validators[_VALIDATOR], "func", validate)
    for built in (config_class, VllmConfig):
        rebuild_dataclass(built, force=True)


def validate(self: Any, *, original: Original) -> Any:
    """The replacement for vLLM's validator."""
    return self if is_ours(self.backend) else original(self)


HOOK = Hook(
    summary="disable_any_whitespace may be set for the whole server",
    targets=(Target(_MODULE, f"StructuredOutputsConfig.{_VALIDATOR}", ("self",)),),
    apply=allow_options,
    without_it="set disable_any_whitespace in each request instead",
)
