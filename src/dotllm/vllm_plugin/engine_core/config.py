"""vLLM's configuration accepts an option for the whole server that it reserves for other backends.

``StructuredOutputsConfig`` is a pydantic dataclass whose validator refuses ``disable_any_whitespace`` unless xgrammar
or guidance is named. The validator is replaced by one that leaves servers on dotllm (backend ``auto``) alone, and the
class built again. That leans on pydantic's layout, not on vLLM's.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import is_ours

_MODULE = "vllm.config.structured_outputs"
_VALIDATOR = "_validate_structured_output_config"
AUTO = "auto"


def allow_options(config: Any) -> None:
    """Let a server on dotllm set ``disable_any_whitespace`` (``config`` is the class ``StructuredOutputsConfig``).
    Idempotent."""
    if not is_ours(AUTO) or _accepts(config, backend=AUTO, disable_any_whitespace=True):
        return
    from pydantic.dataclasses import rebuild_dataclass

    decorator = config.__pydantic_decorators__.model_validators[_VALIDATOR]
    original = decorator.func

    @wraps(original)
    def validate(self: Any) -> Any:
        return self if is_ours(self.backend) else original(self)

    decorator.func = validate
    rebuild_dataclass(config, force=True)
    if not _accepts(config, backend=AUTO, disable_any_whitespace=True):
        raise TypeError("StructuredOutputsConfig still refuses disable_any_whitespace")


def _accepts(config: Any, **values: Any) -> bool:
    try:
        config(**values)
    except ValueError:  # pydantic's ValidationError is one
        return False
    return True


def _apply() -> None:
    from vllm.config.structured_outputs import StructuredOutputsConfig

    allow_options(StructuredOutputsConfig)


HOOK = Hook(
    name="backend-options",
    summary="disable_any_whitespace may be set for the whole server",
    targets=(
        Target(_MODULE, f"StructuredOutputsConfig.{_VALIDATOR}", ("self",)),
        Target(_MODULE, "StructuredOutputsConfig.disable_any_whitespace:"),
        Target(_MODULE, "StructuredOutputsConfig.backend:"),
    ),
    apply=_apply,
    required=False,
    without_it="set disable_any_whitespace in each request instead",
)
