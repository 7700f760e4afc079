"""Constraints in fields that vLLM does not read are refused: HTTP 400 that names the field and the one to use.

vLLM's request models let unknown fields pass, so a constraint written where this API does not look for it (a
``guided_json`` of older releases, ``response_format`` in a Responses request, ``structured_outputs`` in an Anthropic
one) is answered with 200 and free text. The same goes for two constraints of which one wins without a word.

The OpenAI request classes keep their unknown fields; `refuse` is called where they become sampling parameters
(`endpoints`, `beam_search`). Anthropic's drop them, so they are told to keep them (`HOOK`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import wraps
from typing import Any

from dotllm.errors import InvalidSpec
from dotllm.vllm_plugin import specification
from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.hook import Hook, Target

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
_PROTOCOL = "vllm.entrypoints.anthropic.protocol"
_SERVING = "vllm.entrypoints.anthropic.serving"


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


def _apply() -> None:
    request_class = importlib.import_module(_PROTOCOL).AnthropicMessagesRequest
    serving_class = importlib.import_module(_SERVING).AnthropicServingMessages
    original = serving_class._handle_output_config.__func__
    if getattr(original, "is_dotllm", False):
        return
    if not {"output_config", "messages"} <= set(request_class.model_fields):
        raise AttributeError("AnthropicMessagesRequest names its fields differently")
    request_class.model_config["extra"] = "allow"
    request_class.model_rebuild(force=True)

    @wraps(original)
    def _handle_output_config(cls: Any, req: Any, anthropic_request: Any) -> None:
        if isinstance(anthropic_request, request_class):
            refuse_anthropic(anthropic_request)
        original(cls, req, anthropic_request)

    _handle_output_config.is_dotllm = True  # type: ignore[attr-defined]  # marks the wrapper
    serving_class._handle_output_config = classmethod(_handle_output_config)


HOOK = Hook(
    name="anthropic-fields",
    summary="a constraint in a field that Anthropic's API does not have is refused",
    targets=(
        Target(_PROTOCOL, "AnthropicMessagesRequest.output_config:"),
        Target(_SERVING, "AnthropicServingMessages._handle_output_config", ("cls", "req", "anthropic_request")),
    ),
    apply=_apply,
    required=False,
    without_it="vLLM ignores such a field without a word",
)
