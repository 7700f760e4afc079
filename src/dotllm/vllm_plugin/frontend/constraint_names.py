"""A constraint of a kind that there is not is refused by its name, and with the names that there are.

vLLM drops the unknown keys of ``structured_outputs``, so ``{"json_schema": …}`` is an empty object to it, which is
refused with a dump of that object; and beside a known key the unknown one is ignored. The request as it was sent is
seen in a check of vLLM's for chats and completions; of others there is only the empty object.
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_PROTOCOLS = (
    "vllm.entrypoints.openai.chat_completion.protocol",
    "vllm.entrypoints.openai.completion.protocol",
)
_CHECK = "validate_structured_outputs_structural_tag"
_PARAMS = "vllm.sampling_params"
_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


def refuse_unknown(structured_outputs: Any) -> None:
    """Refuse a request's ``structured_outputs`` with a key that nobody reads, if the server is on dotllm.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    if not isinstance(structured_outputs, dict) or not front_end.serves():
        return
    for name, value in structured_outputs.items():
        if value is not None and name not in _fields():
            _refusal(f"structured_outputs has no field {name!r}: use one of {', '.join(_KINDS)}")


def _fields() -> tuple[str, ...]:
    """What this vLLM has, options and all."""
    return tuple(importlib.import_module(_PARAMS).StructuredOutputsParams.__dataclass_fields__)


def _refusal(message: str) -> None:
    from vllm.exceptions import VLLMValidationError

    raise VLLMValidationError(message, parameter="structured_outputs")


def _check_with(original: Any) -> Any:
    def validate_structured_outputs_structural_tag(structured_outputs: Any) -> None:
        refuse_unknown(structured_outputs)
        original(structured_outputs)

    return validate_structured_outputs_structural_tag


def _post_init_with(original: Any) -> Any:
    def __post_init__(self: Any) -> None:
        if front_end.serves() and all(getattr(self, name) is None for name in _KINDS):
            _refusal(f"structured_outputs sets none of {', '.join(_KINDS)} (other names are not read)")
        original(self)

    return __post_init__


def _apply() -> None:
    for module in _PROTOCOLS:
        replace_once(importlib.import_module(module), _CHECK, _check_with)
    replace_once(importlib.import_module(_PARAMS).StructuredOutputsParams, "__post_init__", _post_init_with)


HOOK = Hook(
    name="constraint-names",
    summary="a key of structured_outputs that there is not is named",
    targets=(Target(_PARAMS, "StructuredOutputsParams.__post_init__", ("self",)),),
    apply=_apply,
    required=False,
    without_it="such a key is ignored, or answered with a dump of the empty object",
)
