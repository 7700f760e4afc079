"""H1: vLLM's configuration accepts ``dotllm`` as a structured-outputs backend, and options it reserved for others.

``StructuredOutputsConfig`` is a pydantic dataclass whose field ``backend`` is a Literal. The Literal is widened in the
three places where dataclasses and pydantic keep it, and the class's validator is built again. That leans on pydantic's
layout, not on vLLM's: where it should break one day, the backend ``auto`` still means dotllm.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, Literal, get_args

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours

_MODULE = "vllm.config.structured_outputs"
_VALIDATOR = "_validate_structured_output_config"


def apply(config: Any) -> None:
    """Widen ``config.backend`` (``config`` is the class ``StructuredOutputsConfig``). Idempotent."""
    if _accepts(config, backend=BACKEND):
        return
    from pydantic.dataclasses import rebuild_dataclass

    field = config.__dataclass_fields__["backend"]
    widened = Literal[(*get_args(field.type), BACKEND)]  # type: ignore[valid-type]  # a Literal made at run time
    config.__annotations__["backend"] = widened
    field.type = widened
    config.__pydantic_fields__["backend"].annotation = widened
    rebuild_dataclass(config, force=True)
    if not _accepts(config, backend=BACKEND):
        raise TypeError("StructuredOutputsConfig still refuses the backend")


def allow_options(config: Any) -> None:
    """Let a server on dotllm set ``disable_any_whitespace`` and ``disable_additional_properties``. Idempotent."""
    if _accepts(config, backend=BACKEND, disable_any_whitespace=True):
        return
    from pydantic.dataclasses import rebuild_dataclass

    decorator = config.__pydantic_decorators__.model_validators[_VALIDATOR]
    original = decorator.func

    @wraps(original)
    def validate(self: Any) -> Any:
        return self if is_ours(self.backend) else original(self)

    decorator.func = validate
    rebuild_dataclass(config, force=True)
    if not _accepts(config, backend=BACKEND, disable_any_whitespace=True):
        raise TypeError("StructuredOutputsConfig still refuses disable_any_whitespace")


def _accepts(config: Any, **values: Any) -> bool:
    try:
        config(**values)
    except ValueError:  # pydantic's ValidationError is one
        return False
    return True


def _apply_name() -> None:
    from vllm.config.structured_outputs import StructuredOutputsConfig

    apply(StructuredOutputsConfig)


def _apply_options() -> None:
    from vllm.config.structured_outputs import StructuredOutputsConfig

    allow_options(StructuredOutputsConfig)


NAME_HOOK = Hook(
    name="backend-name",
    summary="--structured-outputs-config.backend accepts 'dotllm'",
    targets=(Target(_MODULE, "StructuredOutputsConfig.backend:"),),
    apply=_apply_name,
    required=False,
    without_it="leave the backend at 'auto', which means dotllm",
)

WHITESPACE_HOOK = Hook(
    name="backend-options",
    summary="disable_any_whitespace may be set for the whole server",
    targets=(
        Target(_MODULE, f"StructuredOutputsConfig.{_VALIDATOR}", ("self",)),
        Target(_MODULE, "StructuredOutputsConfig.disable_any_whitespace:"),
    ),
    apply=_apply_options,
    required=False,
    without_it="set disable_any_whitespace in each request instead",
)
