"""Constraints in fields that vLLM does not read are refused: HTTP 400 that names the field and the one to use.

vLLM's request models let unknown fields pass, so a constraint written where this API does not look for it (a
``guided_json`` of older releases, ``response_format`` in a Responses request, ``structured_outputs`` in an Anthropic
one) is answered with 200 and free text. The same goes for two constraints of which one wins without a word. The OpenAI
request classes keep their unknown fields; `refuse_fields` is called where they become sampling parameters
(`endpoints`), so that one request of a batch is refused and not the batch.

Anthropic's request class drops unknown fields. All request classes drop unknown keys of ``structured_outputs``: they
read ``{"json_schema": …}`` as an empty object, ignore an unknown key beside a known one, and answer a list with HTTP
500 and no reason. A validator of vLLM's models sees the request as it was sent. We replace this validator where
pydantic keeps it. An OpenAI request parses even if it is refused, and keeps the reason for `refuse_fields`:
``run-batch`` parses its requests one after another, and the first that does not parse ends them all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.frontend.validation import refuse, refused_as_by_vllm, require_object
from dotllm.vllm_plugin.hook import Hook, Original, Target, replace_once
from dotllm.vllm_plugin.specification import KINDS, OPTIONS, refuse_half_characters, refuse_unknown

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
_RESPONSES = {**_ELSEWHERE, "response_format": "text.format"}
_ANTHROPIC = {
    **_ELSEWHERE,
    "response_format": "output_config.format",
    "structured_outputs": "output_config.format",
    "output_format": "output_config.format",  # the name during Anthropic's beta
}
# What goes to the engine as it is.
_SENT = ("stop", "bad_words", "vllm_xargs", "kv_transfer_params", "chat_template_kwargs", "request_id")
_REFUSAL = "dotllm_refusal"
"""The unknown field in which a parsed OpenAI request keeps why it is refused."""

_PROMPT = ("prompt", "suffix", "input", "instructions", "messages", "tools")

_BASE = Target("vllm.entrypoints.serve.engine.protocol", "OpenAIBaseModel.__log_extra_fields__", ("cls", "data"))
_MESSAGES = Target(
    "vllm.entrypoints.anthropic.protocol", "AnthropicMessagesRequest.apply_return_mm_kwargs_alias", ("cls", "data")
)

HOOK = Hook(
    name="unsupported-fields",
    summary="a constraint in a field that an API does not have is refused, by its name",
    targets=(_BASE, _MESSAGES),
    apply=lambda: _see_requests_as_sent(),
    without_it="vLLM ignores such a field without a word, or answers with a dump of an empty object",
)


def refuse_fields(request: Any) -> None:
    """Refuse an OpenAI request that names a constraint where it would be ignored, if the server is on dotllm. Raises as
    `refuse`."""
    if not engine_info.serves():
        return
    refusal = (request.model_extra or {}).get(_REFUSAL)
    if isinstance(refusal, tuple):  # which no client can send
        refuse(*refusal)
    with refused_as_by_vllm():
        refuse_unknown(request.vllm_xargs)
        refuse_half_characters({name: getattr(request, name, None) for name in _SENT})
    if "response_format" in type(request).model_fields:
        name, form = "response_format", request.response_format
        _refuse_any(request.model_extra, _ELSEWHERE)
        if request.structured_outputs is not None and form is not None and form.type != "text":
            refuse("response_format and structured_outputs are both given, and only one can be enforced: remove one")
    else:
        name, form = "text.format", getattr(request.text, "format", None)
        _refuse_any(request.model_extra, _RESPONSES)
    if form is not None and form.type in ("json_object", "text"):
        # Other servers read a schema in json_object.
        given = {"json_schema": getattr(form, "json_schema", None), **(form.model_extra or {})}
        for field in ("schema", "response_schema", "json_schema"):
            if given.get(field) is not None:
                refuse(
                    f"{name}.{field} is not read with type {form.type!r} and would not be enforced: "
                    "use type 'json_schema'",
                    f"{name}.{field}",
                    "unknown_field",
                )


def refuse_half_characters_of_prompt(request: BaseModel) -> None:
    """Refuse a request whose prompt holds half of a surrogate pair: tokenizers only say that they want another type.
    To look for one takes long, so it is done when a request has failed. Raises as `refuse`."""
    with refused_as_by_vllm():
        refuse_half_characters(request.model_dump(include={*_PROMPT}, warnings=False))


def _refuse_any(fields: Mapping[str, object] | None, instead: Mapping[str, str]) -> None:
    for name, replacement in instead.items():
        if fields and fields.get(name) is not None:
            message = f"the field {name!r} is not read here and would not be enforced: use {replacement!r}"
            refuse(message, name, "unknown_field")


def _refuse_openai(request: Mapping[str, object]) -> None:
    """Refuse a request for what is lost of it when vLLM parses it: unknown keys, the name of a schema that is not."""
    structured = request.get("structured_outputs")
    if isinstance(structured, dict):
        for name, value in structured.items():
            if value is not None and name not in (*KINDS, *OPTIONS):
                message = f"structured_outputs has no field {name!r}: use one of {', '.join(KINDS)}"
                refuse(message, f"structured_outputs.{name}", "unknown_field")
        if all(structured.get(name) is None for name in KINDS):
            refuse(f"structured_outputs sets none of {', '.join(KINDS)}", "structured_outputs")
        tag = structured.get("structural_tag")
        if tag is not None and not isinstance(tag, str):
            name = "structured_outputs.structural_tag"
            refuse(f"{name} is a text of JSON, not {tag!r:.40}: send it as a string", name)
        if tag is not None:
            with refused_as_by_vllm():  # vLLM asks us, but does not pass on the answer
                require_object(tag)
    elif structured is not None and not hasattr(structured, "all_constraints_none"):  # (it is vLLM's own)
        message = f"structured_outputs is an object with one of {', '.join(KINDS)}, not {structured!r:.40}"
        refuse(message, "structured_outputs")
    form = request.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        named = form.get("json_schema")
        if isinstance(named, dict) and named.get("schema") is None:
            name = "response_format.json_schema.schema"
            refuse(f"{name} is missing: type 'json_schema' needs a schema", name)


def _openai_to_parse(request: Mapping[str, object]) -> Mapping[str, object]:
    """``request``; if it is refused, the reason in place of its constraint."""
    from vllm.exceptions import VLLMValidationError

    try:
        _refuse_openai(request)
    except VLLMValidationError as error:
        free = {name: field for name, field in request.items() if name not in ("structured_outputs", "response_format")}
        return {**free, _REFUSAL: (error.args[0], error.parameter, error.dotllm_code)}
    return request


def _messages_to_parse(request: Mapping[str, object]) -> Mapping[str, object]:
    """``request`` to Anthropic's Messages API, which drops what we would ask for later. Raises as `refuse`."""
    _refuse_any(request, _ANTHROPIC)
    config = request.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    if isinstance(form, dict) and not form.get("schema"):
        refuse("output_config.format has no schema, or an empty one, and nothing would be enforced")
    return request


def _see_requests_as_sent() -> None:
    """Let validators of vLLM's that are given a request as it was sent, before all others, show it to us."""
    base, messages = (target.name.rpartition(".")[2] for target in (_BASE, _MESSAGES))
    for module, name, validator, to_parse in (
        ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest", base, _openai_to_parse),
        ("vllm.entrypoints.openai.chat_completion.protocol", "BatchChatCompletionRequest", base, _openai_to_parse),
        ("vllm.entrypoints.openai.completion.protocol", "CompletionRequest", base, _openai_to_parse),
        ("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest", base, _openai_to_parse),
        (_MESSAGES.module, "AnthropicMessagesRequest", messages, _messages_to_parse),
    ):
        request_class = getattr(importlib.import_module(module), name)
        replace_once(request_class.__pydantic_decorators__.model_validators[validator], "func", _parsing(to_parse))
        request_class.model_rebuild(force=True)


def _parsing(to_parse: Callable[[Mapping[str, object]], Mapping[str, object]]) -> Callable[..., object]:
    def validator(data: object, handler: object = None, *, original: Original) -> object:
        if isinstance(data, dict) and engine_info.serves():
            data = to_parse(data)
        return original(data) if handler is None else original(data, handler)

    return validator
