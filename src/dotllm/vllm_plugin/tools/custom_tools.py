"""Custom tools: the input of a call is a text, and a grammar (Lark or a regular expression) may restrict it.

OpenAI's Responses API and chats have them; Codex sends its ``apply_patch`` as one. vLLM has them in Responses only: it
shows a custom tool to the model as a function with one string, ``input``, and refuses a tool with a grammar.

*How the model writes the call.* Like any other call, in the notation of its chat template: the model has learnt it, the
template writes it for earlier calls, and every tool parser reads it. Raw text between marks of our own would need no
escapes, but no model and no template knows such marks. The grammar is still exact: it holds for the text before it is
escaped (`dotllm.languages.quoted`). The description of ``input`` tells the model the grammar, because nothing else in
the prompt would.

A chat's custom tools become functions before vLLM parses the request, and the calls of the answer become calls of
custom tools. In Responses, vLLM does both; we only hide the grammar, which it would refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dotllm.errors import shown
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.enforce.validation import refuse
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.tools import tag_rewrite

_UTILS = "vllm.tool_parsers.utils"
_RESPONSES = "vllm.entrypoints.openai.responses.utils"
_TYPE, _INPUT, _FORMAT = "custom", "input", "dotllm_format"
"""The last is the unknown field that marks a chat's function as a custom tool; no client can send its value."""
_SYNTAXES = ("lark", "regex")
_is_on = False


def _turn_on() -> None:
    global _is_on
    _is_on = True


HOOK = Hook(
    summary="custom tools may have grammars, and chats may have custom tools",
    apply=_turn_on,
    targets=(
        Target(_UTILS, "custom_tool_parameters", ()),
        Target(_RESPONSES, "decode_custom_tool_input_prefix", ("arguments",)),
    ),
    without_it="custom tools with a grammar, and all custom tools of chats, are refused",
)


class _Format(NamedTuple):
    """The format of a custom tool; without a syntax, it allows any text."""

    syntax: str = ""
    definition: str = ""


# --- the request, before vLLM parses it


def to_parse(request: Mapping[str, Any], *, is_chat: bool) -> Mapping[str, Any]:
    """``request`` in a form that vLLM can parse. Raises as `refuse` does."""
    if not _is_on:
        return request
    tools = request.get("tools")
    changed: dict[str, Any] = {}
    if isinstance(tools, list) and any(_is_custom(tool) for tool in tools):
        changed["tools"] = [
            _tool(tool, i, is_chat=is_chat) if _is_custom(tool) else tool for i, tool in enumerate(tools)
        ]
        _refuse_same_names(tools, is_chat=is_chat)
    for i, tool in enumerate(tools if isinstance(tools, list) else ()):
        _refuse_in_namespace(tool, i)
    choice, messages = request.get("tool_choice"), request.get("messages")
    if is_chat and isinstance(choice, dict) and isinstance(choice.get(_TYPE), dict):
        changed["tool_choice"] = {"type": "function", "function": choice[_TYPE]}
    if is_chat and isinstance(messages, list) and any(_calls_of(message) for message in messages):
        changed["messages"] = [_message(message) for message in messages]
    return {**request, **changed} if changed else request


def _is_custom(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == _TYPE


def _tool(tool: dict[str, Any], number: int, *, is_chat: bool) -> dict[str, Any]:
    at = f"tools[{number}]"
    if not is_chat:
        if _TYPE in tool and "name" not in tool:
            refuse(
                f"{at}.{_TYPE} is not read here: this API has 'name' and 'format' in the tool itself", f"{at}.{_TYPE}"
            )
        return _with_hidden_grammar(tool, at)
    inner = tool.get(_TYPE)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        refuse(f"{at}.{_TYPE} is an object with the 'name' of the tool, not {shown(inner)}", f"{at}.{_TYPE}")
    form = _format(inner.get("format"), f"{at}.{_TYPE}.format", is_chat=True)
    function = {"name": inner["name"], "parameters": _parameters(form), _FORMAT: form or _Format()}
    if inner.get("description") is not None:
        function["description"] = inner["description"]
    if form is not None:
        function["strict"] = True
    return {"type": "function", "function": function}


def _with_hidden_grammar(tool: dict[str, Any], at: str) -> dict[str, Any]:
    """A Responses tool with a grammar that vLLM does not refuse, because it is not a JSON object."""
    form = _format(tool.get("format"), f"{at}.format", is_chat=False)
    if form is None:
        return tool
    from openai.types.shared.custom_tool_input_format import Grammar

    return {**tool, "format": Grammar(type="grammar", syntax=form.syntax, definition=form.definition)}


def _format(value: Any, at: str, *, is_chat: bool) -> _Format | None:
    """The grammar in a format; None if there is none. Raises as `refuse` does."""
    if value is None or (isinstance(value, dict) and value.get("type") == "text"):
        return None
    if not isinstance(value, dict) or value.get("type") != "grammar":
        kind = value.get("type") if isinstance(value, dict) else value
        refuse(f"{at} has the type 'text' or 'grammar', not {shown(kind)}", f"{at}.type")
    fields = value.get("grammar") if is_chat else value
    where = f"{at}.grammar" if is_chat else at
    if not isinstance(fields, dict) or not isinstance(fields.get("definition"), str):
        refuse(f"{where}.definition (the text of the grammar) is missing", f"{where}.definition")
    if fields.get("syntax") not in _SYNTAXES:
        refuse(f"{where}.syntax is 'lark' or 'regex', not {shown(fields.get('syntax'))}", f"{where}.syntax")
    return _Format(fields["syntax"], fields["definition"])


def _refuse_same_names(tools: Sequence[Any], *, is_chat: bool) -> None:
    """Refuse two tools with the same name if one is a custom tool: a call could mean either."""
    seen: dict[str, bool] = {}
    for i, tool in enumerate(tools):
        fields = tool.get(_TYPE if _is_custom(tool) else "function") if is_chat and isinstance(tool, dict) else tool
        name = fields.get("name") if isinstance(fields, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen and (seen[name] or _is_custom(tool)):
            refuse(f"tools[{i}] has the name {shown(name, 80)}, which another tool has: rename it", f"tools[{i}]")
        seen[name] = seen.get(name, False) or _is_custom(tool)


def _refuse_in_namespace(tool: Any, number: int) -> None:
    """Refuse a grammar in a namespace of Responses, whose custom tools vLLM does not show to the model."""
    inner = tool.get("tools") if isinstance(tool, dict) else None
    for j, declared in enumerate(inner if isinstance(inner, list) else ()):
        if (
            _is_custom(declared)
            and isinstance(declared.get("format"), dict)
            and declared["format"].get("type") == "grammar"
        ):
            at = f"tools[{number}].tools[{j}].format"
            refuse(f"{at}: a custom tool in a namespace cannot be called here: put it into 'tools'", at, "unsupported")


def _calls_of(message: Any) -> list[Any]:
    """The calls of custom tools in ``message``, an earlier answer."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [call for call in calls if _is_custom(call)] if isinstance(calls, list) else []


def _message(message: Any) -> Any:
    if not _calls_of(message):
        return message
    return {**message, "tool_calls": [_as_function_call(call) for call in message["tool_calls"]]}


def _as_function_call(call: Any) -> Any:
    inner = call.get(_TYPE) if _is_custom(call) else None
    if not isinstance(inner, dict):
        return call
    arguments = json.dumps({_INPUT: inner.get(_INPUT, "")}, ensure_ascii=False)
    rest = {name: value for name, value in call.items() if name != _TYPE}
    return {**rest, "type": "function", "function": {"name": inner.get("name"), "arguments": arguments}}


# --- the function that the model sees, and its constraint


def _parameters(form: _Format | None) -> dict[str, Any]:
    """vLLM's schema of the arguments; its description says what the grammar is."""
    from vllm.tool_parsers import utils

    schema: dict[str, Any] = utils.custom_tool_parameters()
    if form is not None:
        syntax = "Lark grammar" if form.syntax == "lark" else "regular expression"
        schema["properties"][_INPUT]["description"] += f" It is a text of this {syntax}:\n{form.definition}"
    return schema


@HOOK.replaces(f"{_UTILS}:custom_tool_as_function_dict")
def _custom_tool_as_function_dict(tool: Any, *, original: Original) -> dict[str, Any]:
    form = grammar_of(tool)
    constrained = {} if form is None else {"parameters": _parameters(form), "strict": True}
    return {**original(tool), **constrained}


def grammar_of(function: Any) -> _Format | None:
    """The grammar of a function from `tag_rewrite.functions`; None if it has none."""
    if getattr(function, "type", None) == _TYPE:
        form = function.format
        return _Format(form.syntax, form.definition) if form is not None and form.type == "grammar" else None
    stated = _format_of(function)
    return stated if stated is not None and stated.syntax else None


def _format_of(function: Any) -> _Format | None:
    """The format of a chat's custom tool; None for an ordinary function."""
    form = (getattr(function, "model_extra", None) or {}).get(_FORMAT)
    return form if isinstance(form, _Format) else None


def stated_parameters(function: Any) -> dict[str, Any] | None:
    """The schema of a Responses custom tool; None for any other function."""
    return _parameters(grammar_of(function)) if getattr(function, "type", None) == _TYPE else None


def constrain(tag: object, tools: Sequence[Any]) -> None:
    """Put the grammars into a structural tag that vLLM has made of ``tools``."""
    forms = [form for _, _, function in tag_rewrite.functions(tools) if (form := grammar_of(function)) is not None]
    shown_to_models = [(_parameters(form), form) for form in forms]
    for json_form in tag_rewrite.schemas(tag) if forms else ():
        if not isinstance(json_form.get("json_schema"), dict):
            continue
        stated = {name: part for name, part in json_form["json_schema"].items() if name != "$id"}
        for schema, form in shown_to_models:
            if stated == schema:
                json_form["json_schema"] = {"type": "object"}
                json_form["input_grammar"] = form._asdict()
                break


def tag_of_lists(schema: Any) -> dict[str, Any]:
    """The structural tag for the schema that vLLM makes with parsers that have no notation of their own: a list of
    calls in JSON, or the arguments of the named tool."""
    schema = json.loads(schema) if isinstance(schema, str) else schema
    if schema.get("type") != "array":
        return {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    tags = []
    for call in schema["items"]["anyOf"]:
        name, parameters = call["properties"]["name"]["enum"][0], call["properties"]["parameters"]
        content = {"type": "json_schema", "json_schema": parameters}
        tags.append({"begin": f'{{"name": {json.dumps(name)}, "parameters": ', "content": content, "end": "}"})
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": ", ",
        "at_least_one": True,
        "stop_after_first": schema.get("maxItems") == 1,
    }
    ends = [{"type": "const_string", "value": text} for text in "[]"]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": [ends[0], calls, ends[1]]}}


def refuse_unenforced(request: Any, tag: str | None) -> None:
    """Refuse a request because of a grammar that its structural tag does not enforce. Raises as `refuse` does."""
    choice, tools = getattr(request, "tool_choice", None), getattr(request, "tools", None)
    if choice == "none" or not _is_on:
        return
    named = getattr(getattr(choice, "function", choice), "name", None)
    for path, name, function in tag_rewrite.functions(tools or ()):
        form = grammar_of(function)
        if form is None or named not in (None, name):
            continue
        if tag is None or f'"definition": {json.dumps(form.definition)}' not in tag:
            place = _field(path)
            said = "with tool_choice 'auto': use 'required' or the tool's name" if choice in (None, "auto") else ""
            refuse(
                f"the grammar of tool {shown(name, 80)} would not be enforced (at {_pointer(place)}): "
                f"the server's tool parser describes no notation to enforce it in {said}".rstrip(),
                place,
                "unsupported",
            )


def places(tools: Sequence[Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """For each tool with a grammar: its name, the grammar's place, and the grammar in the form that tags have."""
    for path, name, function in tag_rewrite.functions(tools):
        if (form := grammar_of(function)) is not None:
            yield str(name), _pointer(_field(path)), form._asdict()


def _field(path: str) -> str:
    """The place of a tool's grammar in a request; ``path``: of its function, in the form that vLLM has made of it."""
    tool = tag_rewrite.place(path)
    return f"{tool}.format" if tool == path else f"{tool}.custom.format.grammar"


def _pointer(place: str) -> str:
    return "/" + re.sub(r"\[(\d+)\]", r"/\1", place).replace(".", "/")


# --- the answer


@HOOK.replaces(f"{_RESPONSES}:decode_custom_tool_input")
def _decode_custom_tool_input(arguments: str, *, original: Original) -> str:
    """If ``max_tokens`` cut the call, return the beginning of its input: vLLM returns the beginning of the JSON."""
    text: str = original(arguments)
    if text == arguments and engine_info.serves() and _OPENING.match(arguments):
        return _Input().add(arguments)
    return text


def _names(request: Any) -> set[str]:
    """The names of a chat's custom tools."""
    tools = getattr(request, "tools", None) or ()
    return {name for _, name, function in tag_rewrite.functions(tools) if name and _format_of(function) is not None}


def answered(request: Any, answer: Any) -> Any:
    """The ``answer`` to a chat, with calls of its custom tools."""
    names = _names(request) if _is_on else None
    if not names:
        return answer
    if isinstance(answer, AsyncGenerator):
        return _streamed(answer, names)
    for choice in getattr(answer, "choices", ()):
        calls = choice.message.tool_calls or ()
        choice.message.tool_calls = [_call(call) if call.function.name in names else call for call in calls]
    return answer


def _call(call: Any) -> Any:
    """A custom tool's call in place of a function's. The type is an extra field: vLLM's has only one value."""
    from vllm.entrypoints.openai.responses.utils import decode_custom_tool_input

    function, custom = call.function, type(call).model_construct(id=call.id)
    custom.__dict__ = {"id": call.id}
    text = decode_custom_tool_input(function.arguments)
    custom.__pydantic_extra__ = {"type": _TYPE, _TYPE: {"name": function.name, _INPUT: text}}
    return custom


_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_PIECES = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][\da-fA-F]{2}\\u[\da-fA-F]{4}|\\u(?![dD][89abAB])[\da-fA-F]{4}|\\[^u])+'
)


class _Input:
    """The input of a call whose arguments come in pieces."""

    def __init__(self) -> None:
        self.arguments = ""
        self._read = 0

    def add(self, more: str) -> str:
        """What ``more`` of the arguments adds to the input."""
        self.arguments += more
        if not self._read:
            begins = _OPENING.match(self.arguments)
            if begins is None:
                return ""
            self._read = begins.end()
        pieces = _PIECES.match(self.arguments, self._read)
        if pieces is None:
            return ""
        self._read = pieces.end()
        text: str = json.loads(f'"{pieces[0]}"', strict=False)
        return text

    def rest(self) -> str:
        """What is left at the end: all of the arguments, if they are not a custom tool's."""
        return "" if self._read else self.arguments


async def _streamed(answer: AsyncGenerator[str, None], names: set[str]) -> AsyncGenerator[str, None]:
    inputs: dict[tuple[int, int], _Input] = {}
    try:
        async for event in answer:
            if '"tool_calls"' in event or (inputs and '"finish_reason"' in event):
                for part in _events(event, names, inputs):
                    yield part
            else:
                yield event
    finally:
        await answer.aclose()


def _events(event: str, names: set[str], inputs: dict[tuple[int, int], _Input]) -> Iterator[str]:
    """``event``, with calls of custom tools."""
    head, data = event[:6], event[6:].rstrip("\n")
    try:
        chunk = json.loads(data)
        choices = chunk["choices"]
    except (ValueError, KeyError, TypeError):
        yield event
        return
    for choice in choices:
        calls, delta = [], choice.get("delta") or {}
        for call in delta.get("tool_calls") or ():
            key, function = (choice["index"], call["index"]), call.get("function") or {}
            if function.get("name") in names:
                inputs[key] = _Input()
            if key not in inputs:
                calls.append(call)
                continue
            custom = {_INPUT: inputs[key].add(function.get("arguments") or "")}
            if function.get("name"):
                calls.append({"index": call["index"], "id": call.get("id"), "type": _TYPE,
                              _TYPE: {"name": function["name"], **custom}})  # fmt: skip
            elif custom[_INPUT]:
                calls.append({"index": call["index"], _TYPE: custom})
        if choice.get("finish_reason"):
            calls += [
                {"index": key[1], _TYPE: {_INPUT: rest}}
                for key, written in inputs.items()
                if key[0] == choice["index"] and (rest := written.rest())
            ]
        if calls:
            delta["tool_calls"] = calls
        else:
            delta.pop("tool_calls", None)
    if any(_says_something(choice) for choice in choices) or chunk.get("usage"):
        yield f"{head}{json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _says_something(choice: Mapping[str, Any]) -> bool:
    return any(choice.get("delta", {}).values()) or bool(choice.get("finish_reason") or choice.get("logprobs"))
