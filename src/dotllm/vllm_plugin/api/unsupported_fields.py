"""Refuses constraints in fields that vLLM does not read, with an HTTP 400 that names the field and the one to use.

vLLM's request models let unknown fields pass, so a constraint where the API does not look for it (a ``guided_json`` of
older releases, ``response_format`` in a Responses request, ``structured_outputs`` in an Anthropic one) is answered with
200 and free text. `foreign_fields` has the rule that recognises such fields; which field to use instead depends on the
API (`_INSTEAD`). Two constraints in one request are refused, too, because one of them would silently win.

All request classes drop unknown keys of ``structured_outputs``: they read ``{"json_schema": …}`` as an empty object,
ignore an unknown key next to a known one, and answer a list with HTTP 500 and no reason. Anthropic's class and that of
the tokens API drop all keys that they do not know. One validator of each sees the request as it was sent; we replace it
where pydantic keeps it. An OpenAI request parses even if it is refused, and keeps the reason for `refuse_fields`, which
is called when the request becomes sampling parameters (`endpoints`). Otherwise the first request that does not parse
would end a whole ``run-batch``, which parses them one after another.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from dotllm.diagnosis.openai_error import PROMPT, SENT
from dotllm.errors import InvalidSpecError, shown
from dotllm.languages.json_input import refuse_what_cannot_be_sent
from dotllm.vllm_plugin.api import foreign_fields
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.enforce.errors import logits_processors
from dotllm.vllm_plugin.enforce.validation import refuse, refused_as_by_vllm, require_object
from dotllm.vllm_plugin.hook import Hook, Original, Target, replace_once, require_that_it_fits
from dotllm.vllm_plugin.specification import KINDS, OPTIONS, OURS, refuse_unknown
from dotllm.vllm_plugin.tools import allowed_tools, custom_tools, tag_rewrite

_STRUCTURED = {name: f"'structured_outputs.{name}'" for name in (*KINDS, *OPTIONS)}
_CHATS = {
    **_STRUCTURED,
    "json_object": "'response_format' of type 'json_object'",
    "format": "'response_format'",
    "structured_outputs": "'structured_outputs'",
    "tools": "'tools'",
    "tool_choice": "'tool_choice' with 'tools'",
    "single_call": "'parallel_tool_calls': false",
    "vllm_xargs": "'vllm_xargs', an object that holds it",
}
_NO_TOOLS = dict.fromkeys(("tools", "tool_choice"), "'tools' of /v1/chat/completions: this API has none")
_ONLY_SCHEMAS = "'output_config.format', or /v1/chat/completions with 'structured_outputs.{}': this API has JSON only"
_INSTEAD = {
    "ChatCompletionRequest": _CHATS,
    "BatchChatCompletionRequest": {**_CHATS, **_NO_TOOLS},
    "CompletionRequest": {**_CHATS, **_NO_TOOLS},
    "ResponsesRequest": {**_CHATS, **dict.fromkeys(("json", "json_object", "format"), "'text.format'")},
    "AnthropicMessagesRequest": {
        **{kind: _ONLY_SCHEMAS.format(kind) for kind in (*KINDS, *OPTIONS)},
        **dict.fromkeys(("json", "json_object", "format", "structured_outputs"), "'output_config.format'"),
        **{name: _CHATS[name] for name in ("tools", "tool_choice", "vllm_xargs")},
        "single_call": "'disable_parallel_tool_use': true in 'tool_choice'",
    },
    "GenerateRequest": {
        **{name: f"'sampling_params.structured_outputs.{name}'" for name in (*KINDS, *OPTIONS)},
        **dict.fromkeys(("format", "structured_outputs"), "'sampling_params.structured_outputs'"),
        **dict.fromkeys(("tools", "tool_choice", "single_call"), "the answer of /v1/chat/completions/render"),
        "vllm_xargs": "'sampling_params.extra_args'",
    },
}
"""By request class and kind of constraint: the field to use in place of one that the API does not read."""

_OF_VLLM = {"_backend": None, "_backend_was_auto": False}
"""Fields of ``structured_outputs`` that vLLM sets, to these values, when it passes a batch on."""
_REFUSAL = "dotllm_refusal"
"""The unknown field in which a parsed OpenAI request keeps the reason for its refusal."""
_CONSTRAINING = ("structured_outputs", "response_format", "text", "tools", "tool_choice", "vllm_xargs")

_MANY_LEVELS, _MOST_IN_ANSWERS = 64, 250
"""Levels of nesting that vLLM can always write, and those that it can repeat in a Responses answer."""
_TOO_DEEP = "{} is nested too deeply, {} levels of objects and arrays: use fewer"

_BASE = Target("vllm.entrypoints.serve.engine.protocol", "OpenAIBaseModel.__log_extra_fields__", ("cls", "data"))
_MESSAGES = Target(
    "vllm.entrypoints.anthropic.protocol", "AnthropicMessagesRequest.apply_return_mm_kwargs_alias", ("cls", "data")
)

_TOKENS = Target(
    "vllm.entrypoints.scale_out.token_in_token_out.protocol", "GenerateRequest._validate_cache_salt", ("cls", "data")
)

HOOK = Hook(
    summary="a constraint in a field that an API does not have is refused, and the message names the field",
    targets=(_BASE, _MESSAGES, _TOKENS),
    apply=lambda: _see_requests_as_sent(),
    without_it="vLLM silently ignores such a field, or answers with a dump of an empty object",
)


class _Form(NamedTuple):
    """The field of an API that holds a format: its name, its types, the place of the schema in it, and its members."""

    name: str
    types: tuple[str, ...]
    schema: str
    members: tuple[str, ...]


_TYPES = ("text", "json_object", "json_schema")
_RESPONSE_FORMAT = _Form(
    "response_format",
    (*_TYPES, "structural_tag"),
    "json_schema.schema",
    ("type", "json_schema", "format", "structures", "triggers"),
)
_TEXT_FORMAT = _Form("text.format", _TYPES, "schema", ("type", "name", "schema", "strict", "description"))
_OUTPUT_FORMAT = _Form("output_config.format", ("json_schema",), "schema", ("type", "schema"))


def refuse_fields(request: Any) -> None:
    """Refuse an OpenAI request to dotllm with a constraint where it would be ignored. Raises as `refuse` does."""
    if not engine_info.serves():
        return
    refusal = (request.model_extra or {}).get(_REFUSAL)
    if isinstance(refusal, tuple):  # no client can send a tuple
        refuse(*refusal)
    if "text" in type(request).model_fields:
        refuse_too_deep(request, _MOST_IN_ANSWERS)
    with refused_as_by_vllm():
        refuse_what_cannot_be_sent({name: getattr(request, name, None) for name in SENT})
    form = request.response_format if "response_format" in type(request).model_fields else None
    if form is not None and form.type != "text" and request.structured_outputs is not None:
        refuse("response_format and structured_outputs are both given, and only one can be enforced: remove one")


def refuse_too_deep(request: Any, most: int = _MANY_LEVELS) -> None:
    """Refuse a request with a schema of more than ``most`` levels, because vLLM cannot write it. Counting is slow, so
    it is done only after a request has failed, or if the answer repeats the schema. Raises as `refuse` does."""
    for place, value in _constraints(request):
        levels = _levels(value)
        if levels > most:
            refuse(_TOO_DEEP.format(place, levels), place, "too_deep")


def _constraints(request: Any) -> Iterator[tuple[str, object]]:
    """Places of a parsed request that hold a schema or a structural tag, and what they hold."""
    tools = getattr(request, "tools", None) or ()
    for path, _, function in tag_rewrite.functions(tools):
        yield f"{path}.parameters", getattr(function, "parameters", None)
    structured, form = (getattr(request, name, None) for name in ("structured_outputs", "response_format"))
    named = getattr(form, "json_schema", None)
    yield "response_format.json_schema.schema", getattr(named, "json_schema", None)
    yield "response_format", form.model_dump() if isinstance(form, BaseModel) and named is None else None
    yield "text.format.schema", getattr(getattr(getattr(request, "text", None), "format", None), "schema_", None)
    for kind in ("json", "structural_tag"):  # (vLLM puts those of tools there)
        yield f"structured_outputs.{kind}", getattr(structured, kind, None)


def _levels(value: object) -> int:
    """How deeply a value, or the JSON in a text, is nested."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return 0
    level, levels = [value], 0
    while level := [part for piece in level for part in _parts(piece)]:
        levels += 1
    return levels


def _parts(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def refuse_half_characters_of_prompt(request: BaseModel) -> None:
    """Refuse a request whose prompt holds a lone surrogate: a tokenizer's own error only says that it needs another
    type. The search is slow, so it is done only after a request has failed. Raises as `refuse` does."""
    with refused_as_by_vllm():
        refuse_what_cannot_be_sent(request.model_dump(include={*PROMPT}, warnings=False))


def _refuse_foreign(
    request: Mapping[str, object], fields: Mapping[str, object], instead: Mapping[str, str], place: str = ""
) -> None:
    """Refuse a constraint in ``fields``, which are at ``place`` and are not read, unless ``request`` repeats it in a
    field that is read."""
    for constraint in foreign_fields.constraints_in(fields, place):
        if constraint.kind == "single_call" and not _may_be_called(request):
            continue
        if not foreign_fields.is_repeated(constraint, request):
            path, use = constraint.path, instead[constraint.kind]
            refuse(f"the field {path!r} is not read here and would not be enforced: use {use}", path, "unknown_field")


def _refuse_in_arguments(
    read: Mapping[str, object], instead: Mapping[str, str], fields: object, place: str = "vllm_xargs"
) -> None:
    """Refuse a constraint in ``fields``, at ``place``, which only the server operator's logits processors read."""
    if not isinstance(fields, dict):
        return
    with refused_as_by_vllm():
        refuse_unknown(fields)
    if not logits_processors(getattr(engine_info.configuration(), "model_config", None)):
        others = {name: value for name, value in fields.items() if name not in OURS}
        _refuse_foreign(read, others, instead, place)


def _refuse_structured(structured: object, place: str = "structured_outputs") -> None:
    """Refuse the field at ``place`` if vLLM's parsing would lose a part of it: unknown keys, or all that is not an
    object."""
    if isinstance(structured, dict):
        for name, value in structured.items():
            if name not in (*KINDS, *OPTIONS) and _OF_VLLM.get(name, ...) is not value:
                message = f"{place} has no field {name!r}: use one of {', '.join((*KINDS, *OPTIONS))}"
                refuse(message, f"{place}.{name}", "unknown_field")
        said = [name for name in KINDS if structured.get(name) not in (None, False)]
        if len(said) > 1:
            message = f"{place} sets {' and '.join(said)}, and only one can be enforced: remove the others"
            refuse(message, place, "conflict")
        if all(structured.get(name) is None for name in KINDS):
            refuse(f"{place} sets none of {', '.join(KINDS)}", place)
        tag = structured.get("structural_tag")
        if tag is not None and not isinstance(tag, str):
            name = f"{place}.structural_tag"
            kind = "an object" if isinstance(tag, dict) else "a list" if isinstance(tag, list) else shown(tag)
            refuse(f"{name} must be JSON text, not {kind}: send it as a string (in Python: json.dumps(tag))", name)
        if tag is not None:
            with refused_as_by_vllm(f"{place}.structural_tag"):
                require_object(tag)  # vLLM asks us, but does not pass on the answer
    elif structured is not None and not hasattr(structured, "all_constraints_none"):  # (it is vLLM's own)
        message = f"{place} is an object with one of {', '.join(KINDS)}, not {shown(structured)}"
        refuse(message, place)


def _refuse_form(request: Mapping[str, object], form: object, api: _Form, instead: Mapping[str, str]) -> None:
    """Refuse a format whose type the API does not have, a format whose schema is in a place that is not read, and a
    constraint next to the part that is read."""
    name = api.name
    if form is None or isinstance(form, BaseModel):
        return
    if not isinstance(form, dict):
        refuse(f"{name} is an object, as {{'type': 'json_schema', …}}, not {shown(form)}", name)
    kind, at = form.get("type"), f"{name}.{api.schema}"
    if not isinstance(kind, str | None):
        refuse(f"{name}.type must be one of {', '.join(api.types)}, not {shown(kind)}", f"{name}.type")
    if kind not in api.types and not (kind is None and api is _OUTPUT_FORMAT):
        if kind in _STRUCTURED or foreign_fields.is_schema(form) or kind in ("json", "ebnf", "json_schema"):
            asked = {"ebnf": "grammar", "json_object": "json"}.get(str(kind), str(kind))
            better = f"type 'json_schema', with the schema in {at!r}"
            use = better if asked not in _STRUCTURED or asked == "json" else instead[asked]
            refuse(f"{name}.type {shown(kind)} is not read here and would not be enforced: use {use}", f"{name}.type")
        refuse(f"{name}.type must be one of {', '.join(api.types)}, not {shown(kind)}", f"{name}.type")
    others = {field: value for field, value in form.items() if field not in api.members}
    named = form.get("json_schema") if api is _RESPONSE_FORMAT else form
    if kind in ("text", "json_object"):  # other servers read a schema there
        others |= {field: form[field] for field in ("json_schema", "schema") if form.get(field) is not None}
        for field in others if others else ():
            if field in ("schema", "response_schema", "json_schema") and others[field] is not None:
                use = f"{name}.{field} is not read with type {kind!r} and would not be enforced: use type 'json_schema'"
                refuse(use, f"{name}.{field}", "unknown_field")
    elif kind != "structural_tag" and not (isinstance(named, dict) and named.get("schema") is not None):
        where = next((constraint.path for constraint in foreign_fields.constraints_in(form, name)), None)
        unread = f"; what is in {where!r} is not read" if where else ""
        refuse(f"{at} is missing: type 'json_schema' needs a schema{unread}", at)
    elif kind != "structural_tag" and isinstance(named, dict) and not isinstance(named["schema"], dict):
        refuse(f"{at} must be a JSON Schema, an object, not {shown(named['schema'])}", at)
    elif kind == "json_schema" and api is not _OUTPUT_FORMAT and not isinstance((named or {}).get("name"), str):
        at, written = f"{at.removesuffix('.schema')}.name", (named or {}).get("name")
        fault = "is missing" if written is None else f"must be a string, not {shown(written)}"
        refuse(f"{at} {fault}: this API requires a name for the schema", at)
    instead = {**instead, "json": repr(f"{name}.{api.schema}")}
    _refuse_foreign(request, others, instead, name)
    if named is not form and isinstance(named, dict):
        remaining = {field: value for field, value in named.items() if field not in _TEXT_FORMAT.members}
        _refuse_foreign(request, remaining, instead, f"{name}.json_schema")


_OF_ARGUMENTS = ("parameters", "input_schema", "inputSchema", "args_schema", "json_schema", "schema")


def _refuse_tools(request: Mapping[str, object], parameters: str) -> None:
    """Refuse a tool that says what its arguments are, or that it is strict, in a field that the API does not read, and
    a strict tool whose schema is not a schema. ``parameters``: the path of the schema in a tool."""
    _refuse_each_tool(request.get("tools"), parameters, "", _may_be_called(request))


def _may_be_called(request: Mapping[str, object]) -> bool:
    return bool(request.get("tools")) and request.get("tool_choice") not in ("none", {"type": "none"})


def _refuse_each_tool(tools: object, parameters: str, before: str, may_be_called: bool) -> None:
    from dotllm.languages.json_schema.reading.ineffective import says_something

    *function, field = parameters.split(".")
    for i, tool in enumerate(tools if isinstance(tools, list) else ()):
        inner = tool.get(function[0]) if isinstance(tool, dict) and function else tool
        if not isinstance(inner, dict) or not isinstance(tool, dict):
            continue
        at = f"{before}tools[{i}]"
        if not before:  # a namespace of Responses
            _refuse_each_tool(tool.get("tools"), parameters, f"{at}.", may_be_called)
        if inner is not tool and tool.get("strict") and inner.get("strict") is None:
            message = f"{at}.strict is not read, and the call would not be strict: use '{at}.{function[0]}.strict'"
            refuse(message, f"{at}.strict", "unknown_field")
        schema, where = inner.get(field), f"{at}.{parameters}"
        if schema is not None and not isinstance(schema, dict):
            refuse(f"{where} must be a JSON Schema, an object, not {shown(schema)}", where)
        if may_be_called and inner.get("strict") in (True, "true"):
            try:
                says_something(schema)  # as sent: the type that is added later would count as a constraint
            except InvalidSpecError as error:
                refuse(f"tool {inner.get('name')!r:.80}: {error} (at {where})", where, error.code)
        if schema is not None:
            continue
        holders = [(at, tool)] if inner is tool else [(at, tool), (f"{at}.{function[0]}", inner)]
        for place, holder in holders:
            for name in _OF_ARGUMENTS:
                if isinstance(holder.get(name), dict) and not (holder is inner and name == field):
                    message = f"{place}.{name} is not read here: use '{at}.{parameters}'"
                    refuse(message, f"{place}.{name}", "unknown_field")


def _refuse_others(request: Mapping[str, object], request_class: type[BaseModel], own: str = "") -> dict[str, object]:
    """Refuse a constraint where ``request_class`` does not read it. Returns the fields that it reads. ``own``: the
    field of ``tool_choice`` that asks for at most one call in this API."""
    instead, fields = _INSTEAD[request_class.__name__], request_class.model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias), _REFUSAL}
    read = {name: value for name, value in request.items() if name in known}
    _refuse_foreign(read, {name: value for name, value in request.items() if name not in known}, instead)
    _refuse_in_arguments(read, instead, read.get("vllm_xargs"))
    choice = read.get("tool_choice")
    if isinstance(choice, dict):
        others = {name: choice[name] for name in foreign_fields.SINGLE_CALL if name in choice and name != own}
        _refuse_foreign(read, others, instead, "tool_choice")
    return read


def _refuse_openai(request: Mapping[str, object], request_class: type[BaseModel]) -> None:
    """Refuse a request if a part of it is lost when vLLM parses it."""
    instead, read = _INSTEAD[request_class.__name__], _refuse_others(request, request_class)
    _refuse_structured(request.get("structured_outputs"))
    if request_class.__name__ == "ResponsesRequest":
        text = request.get("text")
        if isinstance(text, dict):
            _refuse_form(read, text.get("format"), _TEXT_FORMAT, instead)
            remaining = {name: value for name, value in text.items() if name not in ("format", "verbosity")}
            if foreign_fields.is_schema(remaining):
                _refuse_foreign(read, {"text": remaining}, instead)
            _refuse_foreign(read, remaining, instead, "text")
            if text.get("type") in ("json_schema", "json_object"):
                refuse("text.type is not read here: the format belongs in 'text.format'", "text.type", "unknown_field")
        _refuse_tools(request, "parameters")
    else:
        _refuse_form(read, request.get("response_format"), _RESPONSE_FORMAT, instead)
        _refuse_tools(read, "function.parameters")


def _openai_to_parse(request: Mapping[str, object], request_class: type[BaseModel]) -> Mapping[str, object]:
    """``request`` with only the tools that it allows; a refused one has the reason in place of its constraints."""
    from vllm.exceptions import VLLMValidationError

    try:
        _refuse_openai(request, request_class)
        restricted = allowed_tools.restricted(request)
        return custom_tools.to_parse(restricted, is_chat=request_class.__name__ == "ChatCompletionRequest")
    except VLLMValidationError as error:
        return _refused(request, error.args[0], error.parameter, error.dotllm_code)


def _refused(request: Mapping[str, object], *reason: str | None) -> dict[str, object]:
    """``request`` without its constraints, with the reason for its refusal: the arguments of `refuse`."""
    free = {name: field for name, field in request.items() if name not in _CONSTRAINING}
    return {**free, _REFUSAL: reason}


def _too_deep(request: object) -> dict[str, object] | None:
    """`_refused` of ``request``, if a structural tag in it is too deep for vLLM, whose error names no field."""
    fields = request if isinstance(request, dict) else {}
    structured = fields.get("structured_outputs")
    tag = structured.get("structural_tag") if isinstance(structured, dict) else None
    places = {"structured_outputs.structural_tag": tag, "response_format": fields.get("response_format")}
    for place, value in places.items():
        levels = _levels(value)
        if levels > _MANY_LEVELS:
            return _refused(fields, _TOO_DEEP.format(place, levels), place, "too_deep")
    return None


def _messages_to_parse(request: Mapping[str, object], request_class: type[BaseModel]) -> Mapping[str, object]:
    """``request`` to the Messages API, checked here because its class drops unknown fields. Raises as `refuse` does."""
    from vllm.exceptions import VLLMValidationError

    thread = request.get("thread")
    if isinstance(thread, dict) and thread.get("type") == "continue":
        error = VLLMValidationError("threads are not kept here: send the whole conversation", parameter="thread")
        error.dotllm_code = "unsupported"
        error.details = {"error_code": "thread_unsupported_request"}  # then Anthropic's SDK does so
        raise error
    instead = _INSTEAD[request_class.__name__]
    read = _refuse_others(request, request_class, "disable_parallel_tool_use")
    config = request.get("output_config")
    if isinstance(config, dict):
        form = config.get("format")
        if isinstance(form, dict) and form.get("schema") == {}:
            message = "output_config.format has no schema, or an empty one, and nothing would be enforced"
            refuse(message, "output_config.format.schema")
        _refuse_form(read, form, _OUTPUT_FORMAT, instead)
        remaining = {name: value for name, value in config.items() if name not in ("format", "effort")}
        _refuse_foreign(read, remaining, instead, "output_config")
    _refuse_tools(request, "input_schema")
    return request


def _tokens_to_parse(request: Mapping[str, object], request_class: type[BaseModel]) -> Mapping[str, object]:
    """``request`` to the API of token ids, whose constraint is in vLLM's own parameters. Raises as `refuse` does."""
    from vllm.sampling_params import SamplingParams

    params, instead = request.get("sampling_params"), _INSTEAD[request_class.__name__]
    if isinstance(params, dict):
        read = {name: value for name, value in params.items() if name in SamplingParams.__struct_fields__}
        unread = {name: value for name, value in request.items() if name not in request_class.model_fields}
        unread["sampling_params"] = {name: value for name, value in params.items() if name not in read}
        _refuse_foreign(read, unread, instead)
        _refuse_in_arguments(read, instead, read.get("extra_args"), "sampling_params.extra_args")
        _refuse_structured(read.get("structured_outputs"), "sampling_params.structured_outputs")
    return request


def _see_requests_as_sent() -> None:
    """Replace vLLM's validators that run before all others and see a request as it was sent."""
    validators = []
    for target, to_parse in _parsed():
        name, _, validator = target.name.partition(".")
        request_class = getattr(importlib.import_module(target.module), name)
        decorator = request_class.__pydantic_decorators__.model_validators[validator]
        ours = _parsing(to_parse, request_class)
        require_that_it_fits(decorator, "func", ours)
        validators.append((request_class, decorator, ours))
    for request_class, decorator, ours in validators:
        replace_once(decorator, "func", ours)
        request_class.model_rebuild(force=True)


def _parsed() -> Iterator[tuple[Target, Callable[..., Mapping[str, object]]]]:
    """The validators that see requests as they were sent, and what each of them parses instead."""
    for module, name in (
        ("chat_completion", "ChatCompletionRequest"),
        ("chat_completion", "BatchChatCompletionRequest"),
        ("completion", "CompletionRequest"),
        ("responses", "ResponsesRequest"),
    ):
        inherited = _BASE.name.rpartition(".")[2]
        yield Target(f"vllm.entrypoints.openai.{module}.protocol", f"{name}.{inherited}"), _openai_to_parse
    yield from ((_MESSAGES, _messages_to_parse), (_TOKENS, _tokens_to_parse))


def _parsing(to_parse: Callable[..., Mapping[str, object]], request_class: type[BaseModel]) -> Callable[..., object]:
    from vllm.exceptions import VLLMValidationError

    def validator(data: object, handler: object = None, *, original: Original) -> object:
        if isinstance(data, dict) and engine_info.serves():
            data = to_parse(data, request_class)
        if handler is None:
            return original(data)
        try:
            return original(data, handler)
        except VLLMValidationError as error:
            refused = _too_deep(data) if engine_info.serves() and not getattr(error, "dotllm_code", "") else None
            if refused is None:
                raise
            return original(refused, handler)

    return validator
