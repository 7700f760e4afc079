"""Constraints in fields that vLLM does not read are refused: HTTP 400 that names the field and the one to use.

vLLM's request models let unknown fields pass, so a constraint written where this API does not look for it (a
``guided_json`` of older releases, ``response_format`` in a Responses request, ``structured_outputs`` in an Anthropic
one) is answered with 200 and free text. The same goes for two constraints of which one wins without a word. The OpenAI
request classes keep their unknown fields; `refuse` is called where they become sampling parameters (`endpoints`,
`beam_search`). Anthropic's drop them, so they are told to keep them.

It drops the unknown keys of ``structured_outputs``, too: ``{"json_schema": …}`` is an empty object to it, which is
refused with a dump of that object; beside a known key the unknown one is ignored; and of a list it says nothing but
HTTP 500. The request as it was sent is seen in a validator of vLLM's models of chats and completions, which is replaced
where pydantic keeps it; of others there is only the empty object.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dotllm.errors import InvalidSpec
from dotllm.vllm_plugin import specification
from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

# Removed from vLLM with 0.12; sent by clients written before.
_ELSEWHERE = {
    "structural_tag": "structured_outputs.structural_tag",
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
    "guided_whitespace_pattern": "structured_outputs.whitespace_pattern",
    # What SGLang, llama.cpp and TGI call them.
    "regex": "structured_outputs.regex",
    "ebnf": "structured_outputs.grammar",
    "grammar": "structured_outputs.grammar",
    "json_schema": "structured_outputs.json",
}
# What goes to the engine as it is.
_SENT = ("stop", "bad_words", "vllm_xargs", "kv_transfer_params", "chat_template_kwargs", "request_id")
_RESPONSES = {"response_format": "text.format"}
_ANTHROPIC = {
    "response_format": "output_config.format",
    "structured_outputs": "output_config.format",
    "output_format": "output_config.format",  # the name during Anthropic's beta
}
_ANTHROPIC_PROTOCOL = "vllm.entrypoints.anthropic.protocol"
_ANTHROPIC_SERVING = "vllm.entrypoints.anthropic.serving"
_CHAT = "vllm.entrypoints.openai.chat_completion.protocol"
_VALIDATORS = (
    (_CHAT, "ChatCompletionRequest", "check_structured_outputs_count"),
    (_CHAT, "BatchChatCompletionRequest", "check_batch_mode"),
    ("vllm.entrypoints.openai.completion.protocol", "CompletionRequest", "check_structured_outputs_count"),
)
_PARAMS = "vllm.sampling_params"
_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")

HOOK = Hook(
    name="unsupported-fields",
    summary="a constraint in a field that an API does not have is refused, by its name",
    targets=(
        *(Target(module, f"{name}.{validator}", ("cls", "data")) for module, name, validator in _VALIDATORS),
        Target(_ANTHROPIC_PROTOCOL, "AnthropicMessagesRequest.output_config"),
    ),
    apply=lambda: _see_requests_as_sent(),
    without_it="vLLM ignores such a field without a word, or answers with a dump of an empty object",
)


def refuse(request: Any) -> None:
    """Refuse an OpenAI request that names a constraint where it would be ignored, if the server is on dotllm.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    if not engine_info.serves():
        return
    try:
        specification.refuse_unknown(getattr(request, "vllm_xargs", None))
        specification.refuse_half_characters({name: getattr(request, name, None) for name in _SENT})
    except InvalidSpec as error:
        _refusal(str(error))
    known = type(request).model_fields
    _refuse_extra(request.model_extra or {}, _ELSEWHERE if "response_format" in known else {**_ELSEWHERE, **_RESPONSES})
    refuse_no_schema(request)
    response_format = getattr(request, "response_format", None)
    _refuse_schema_beside("response_format", response_format)
    _refuse_schema_beside("text.format", getattr(getattr(request, "text", None), "format", None))
    if (
        response_format is not None
        and getattr(response_format, "type", "text") != "text"
        and request.structured_outputs is not None
        and not request.structured_outputs.all_constraints_none()
    ):
        _refusal("response_format and structured_outputs are both given, and only one can be enforced: remove one")


def refuse_no_schema(request: Any) -> None:
    """Refuse an OpenAI request that asks for a schema and has none, if the server is on dotllm.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    form = getattr(request, "response_format", None)
    if getattr(form, "type", None) != "json_schema" or not engine_info.serves():
        return
    if getattr(getattr(form, "json_schema", None), "json_schema", None) is None:
        _refusal("response_format.json_schema.schema is missing: type 'json_schema' needs a schema")


def _refuse_schema_beside(name: str, form: Any) -> None:
    """Refuse a format with a schema that its type does not speak of. (Other servers read it in
    json_object, as ``schema`` or ``response_schema``.)"""
    if getattr(form, "type", None) not in ("json_object", "text"):
        return
    given = {"json_schema": getattr(form, "json_schema", None), **(form.model_extra or {})}
    for field in ("schema", "response_schema", "json_schema"):
        if given.get(field) is not None:
            _refusal(
                f"{name}.{field} is not read with type {form.type!r} and would not be enforced: use type 'json_schema'"
            )


def _refuse_extra(fields: Mapping[str, Any], instead: Mapping[str, str]) -> None:
    for name, replacement in instead.items():
        if fields.get(name) is not None:
            _refusal(f"the field {name!r} is not read here and would not be enforced: use {replacement!r}")


def _refusal(message: str) -> None:
    from vllm.exceptions import VLLMValidationError

    raise VLLMValidationError(message)


def refuse_anthropic(request: Any) -> None:
    """The same for a request to Anthropic's Messages API.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    if not engine_info.serves():
        return
    _refuse_extra(request.model_extra or {}, {**_ELSEWHERE, **_ANTHROPIC})
    output_format = getattr(request.output_config, "format", None)
    if output_format is not None and not output_format.json_schema:
        _refusal("output_config.format has no schema, or an empty one, and nothing would be enforced")


def refuse_unknown_keys(structured_outputs: Any) -> None:
    """Refuse a request's ``structured_outputs`` with a key that nobody reads, if the server is on dotllm.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    params_class = importlib.import_module(_PARAMS).StructuredOutputsParams
    if structured_outputs is None or isinstance(structured_outputs, params_class) or not engine_info.serves():
        return
    kinds = ", ".join(_KINDS)
    if not isinstance(structured_outputs, dict):
        _refusal(f"structured_outputs is an object with one of {kinds}, not {structured_outputs!r:.40}")
    fields = [name for name, field in params_class.__dataclass_fields__.items() if field.init]
    for name, value in structured_outputs.items():
        if value is not None and name not in fields:
            _refusal(f"structured_outputs has no field {name!r}: use one of {kinds}")


def _validator_with(original: Any) -> Any:
    def validator(data: Any) -> Any:
        if isinstance(data, dict):
            refuse_unknown_keys(data.get("structured_outputs"))
        return original(data)

    return validator


@HOOK.replaces(f"{_PARAMS}:StructuredOutputsParams.__post_init__")
def _post_init_with(original: Any) -> Any:
    def __post_init__(self: Any) -> None:
        if engine_info.serves() and all(getattr(self, name) is None for name in _KINDS):
            _refusal(f"structured_outputs sets none of {', '.join(_KINDS)} (other names are not read)")
        original(self)

    return __post_init__


@HOOK.replaces(f"{_ANTHROPIC_SERVING}:AnthropicServingMessages._handle_output_config")
def _handle_output_config_with(original: Any) -> Any:
    def _handle_output_config(cls: Any, req: Any, anthropic_request: Any) -> None:
        if isinstance(anthropic_request, importlib.import_module(_ANTHROPIC_PROTOCOL).AnthropicMessagesRequest):
            refuse_anthropic(anthropic_request)
        original(cls, req, anthropic_request)

    return _handle_output_config


def _see_requests_as_sent() -> None:
    """Let pydantic's models show us what was sent, and keep what they do not know."""
    for module, name, validator in _VALIDATORS:
        request_class = getattr(importlib.import_module(module), name)
        replace_once(request_class.__pydantic_decorators__.model_validators[validator], "func", _validator_with)
        request_class.model_rebuild(force=True)
    request_class = importlib.import_module(_ANTHROPIC_PROTOCOL).AnthropicMessagesRequest
    if not {"output_config", "messages"} <= set(request_class.model_fields):
        raise AttributeError("AnthropicMessagesRequest names its fields differently")
    request_class.model_config["extra"] = "allow"
    request_class.model_rebuild(force=True)
