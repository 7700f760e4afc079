"""A constraint of a kind that there is not is refused by its name, and with the names that there are.

vLLM drops the unknown keys of ``structured_outputs``, so ``{"json_schema": …}`` is an empty object to it, which is
refused with a dump of that object; beside a known key the unknown one is ignored; and of a list it says nothing but
HTTP 500. The request as it was sent is seen in a validator of vLLM's models of chats and completions, which is replaced
where pydantic keeps it; of others there is only the empty object.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_CHAT = "vllm.entrypoints.openai.chat_completion.protocol"
_COMPLETION = "vllm.entrypoints.openai.completion.protocol"
_VALIDATORS = (
    (_CHAT, "ChatCompletionRequest", "check_structured_outputs_count"),
    (_CHAT, "BatchChatCompletionRequest", "check_batch_mode"),
    (_COMPLETION, "CompletionRequest", "check_structured_outputs_count"),
)
_PARAMS = "vllm.sampling_params"
_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


def refuse_unknown(structured_outputs: Any) -> None:
    """Refuse a request's ``structured_outputs`` with a key that nobody reads, if the server is on dotllm.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    params_class = importlib.import_module(_PARAMS).StructuredOutputsParams
    if structured_outputs is None or isinstance(structured_outputs, params_class) or not engine_info.serves():
        return
    if not isinstance(structured_outputs, dict):
        _refusal(f"structured_outputs is an object with one of {', '.join(_KINDS)}, not {structured_outputs!r:.40}")
    fields = [name for name, field in params_class.__dataclass_fields__.items() if field.init]
    for name, value in structured_outputs.items():
        if value is not None and name not in fields:
            _refusal(f"structured_outputs has no field {name!r}: use one of {', '.join(_KINDS)}")


def _refusal(message: str) -> NoReturn:
    from vllm.exceptions import VLLMValidationError

    raise VLLMValidationError(message, parameter="structured_outputs")


def _validator_with(original: Any) -> Any:
    def validator(data: Any) -> Any:
        if isinstance(data, dict):
            refuse_unknown(data.get("structured_outputs"))
        return original(data)

    return validator


def _post_init_with(original: Any) -> Any:
    def __post_init__(self: Any) -> None:
        if engine_info.serves() and all(getattr(self, name) is None for name in _KINDS):
            _refusal(f"structured_outputs sets none of {', '.join(_KINDS)} (other names are not read)")
        original(self)

    return __post_init__


def _apply() -> None:
    for module, name, validator in _VALIDATORS:
        request_class = getattr(importlib.import_module(module), name)
        replace_once(request_class.__pydantic_decorators__.model_validators[validator], "func", _validator_with)
        request_class.model_rebuild(force=True)
    replace_once(importlib.import_module(_PARAMS).StructuredOutputsParams, "__post_init__", _post_init_with)


HOOK = Hook(
    name="constraint-names",
    summary="a key of structured_outputs that there is not is named",
    targets=(
        *(Target(module, f"{name}.{validator}", ("cls", "data")) for module, name, validator in _VALIDATORS),
        Target(_PARAMS, "StructuredOutputsParams.__post_init__", ("self",)),
    ),
    apply=_apply,
    required=False,
    without_it="such a key is ignored, or answered with a dump of the empty object",
)
