"""Changes the structural tags that vLLM makes of tools, so that its own parsers read each call back completely.

The functions change a parsed tag in place. `constraints` parses and dumps it, once per request.

A *mark* is a text in angle brackets, in a fixed text of the tag. vLLM's tool parsers look for their marks anywhere in
the text of a call, and a user may talk any model into writing ``</tool_call>`` in a string. Hermes' parser ends the
call there, and returns half of the arguments, no call, or a call that the model did not make. A mark that is a special
token does the same harm if a model spells it in ordinary tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dotllm.errors import shown
from dotllm.vllm_plugin.api import response_headers
from dotllm.vllm_plugin.enforce.validation import refuse

_MARK = re.compile(r"<[^<>\n]+>")
_SAME_FOR_ALL = re.compile(r"<[^<>=]+=|<[^<>]+>")
_WITHOUT_EXCLUDES = ("cohere_xml", "minimax_m3_xml")
_HAVE_NAMES, _HAVE_NONE = ("begin", "value"), ("end", "separator", "triggers")  # fields with fixed text
_MARK_OF_ONE_LINE = "<｜tool▁sep｜>"
"""A mark of the notations whose calls vLLM reads on one line only."""
BARE_CALL = '{"name": '
"""What begins a call in Llama's notation, which has no marks."""
_NO_OBJECTS = ("array", "string", "number", "integer", "boolean", "null")
_TYPES = (*_NO_OBJECTS, "object")
_INFINITE = re.compile(r"\b(inf|nan)\b")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]*")
_BLANK_ENDS, _QUOTED = re.compile(r"^\s|\s$"), '"name": "'
"""Parsers strip spaces from a name, except in JSON."""
_ENDS_NAMES = {"minimax": ">", "mistral": "{", "gemma_4": "{("}
"""The characters that end a name for some parsers, although another one is written after it."""
_BREAKS_NAMES = re.compile(r'["\\\0-\x1f\x7f]')


# --- the tag


def exclude_marks(tag: object) -> None:
    """Exclude marks from the strings of the tag's schemas. vLLM does so for ``BeamParser`` alone (0.33).

    If a mark names the tool (``<function=name>``), only the part before the name counts. No string may contain a mark,
    and no raw string the beginning of a parameter. A JSON string may contain an escaped mark (``\\u003c/tool_call>``).
    """
    from dotllm.languages.structural_tag.styles import STYLES

    marks = {mark for text in _fixed_texts(tag) for mark in _MARK.findall(text)}
    same_for_all = {match[0] for mark in marks if (match := _SAME_FOR_ALL.match(mark))}
    for schema in schemas(tag):
        style = schema.get("style", "json")
        begins_parameter = {STYLES[style].before} if style in STYLES else set[str]()
        excludes = sorted(same_for_all | begins_parameter)
        if excludes and not schema.get("excludes") and style not in _WITHOUT_EXCLUDES:
            schema["excludes"] = excludes


def require_finite_numbers(tag: object) -> None:
    """Allow only numbers that are read as finite in the tag's schemas (`json_schema.numbers.bounded_numbers`).

    ``1e400`` is JSON, and every schema accepts it as a number. Most of vLLM's tool parsers read a call with Python's
    ``json`` and write its arguments again: a number that does not fit into a double comes back as ``Infinity``, not as
    JSON. Other parsers make a string of it, and Anthropic's API answers with an error.
    """
    for schema in schemas(tag):
        schema["finite_numbers"] = True


def says_kinds(tag: object) -> bool:
    """Whether all arguments in a tag's calls are written so that a reader knows their types."""
    from dotllm.languages.structural_tag.gemma import STYLE
    from dotllm.languages.structural_tag.styles import STYLES

    styles = {schema.get("style", "json") for schema in schemas(tag)} - {"json", STYLE}
    return all(style in STYLES and STYLES[style].says_kinds for style in styles)


def require_objects(tag: object) -> None:
    """Make every schema that names no type a schema of objects.

    For a tool without ``strict: true``, vLLM leaves the schema to the prompt and takes any JSON value as arguments, so
    ``true`` is a call. The same holds for a strict tool whose schema has ``properties`` and no ``type``. OpenAI's
    clients get such a call; Anthropic's get an error.
    """
    for form in formats(tag):
        if form.get("type") == "json_schema" and form.get("style", "json") == "json":
            schema = {} if form.get("json_schema") is True else form.get("json_schema")
            if isinstance(schema, dict) and "type" not in schema:
                form["json_schema"] = {"type": "object", **schema}


def keep_calls_on_one_line(tag: object) -> None:
    """Allow no white space except single spaces in the JSON of a tag whose parser needs that: in the patterns of two
    parsers of vLLM 0.32 (deepseek_v3 and deepseek_v31), ``.`` does not match a line break, and a call whose arguments
    are JSON on several lines is lost."""
    if any(_MARK_OF_ONE_LINE in text for text in _fixed_texts(tag)):
        for schema in schemas(tag):
            schema["whitespace_pattern"] = " ?"


def let_strings_be_trimmed(tag: object) -> None:
    """Allow line breaks around the strings of a tag whose parser strips them, and none at a string's own ends.

    The parsers of Qwen 3's notation strip one from each end of a value: models are taught to write line breaks there.
    """
    for schema in schemas(tag):
        if schema.get("style") == "qwen_xml":
            schema["style"] = "qwen_trimmed_xml"


def exclude_marks_in_text(tag: object) -> None:
    """Exclude marks from the free text of a tag that was made of tools alone, except where they begin a call. A parser
    mistakes a mark in free text for a call, even a mark that belongs inside another, or a part of the text that begins
    a call. So free text contains no mark, and the first mark of a call begins it."""
    marks = {mark for text in _fixed_texts(tag, ("begin",)) for mark in _SAME_FOR_ALL.findall(text)}
    for form in formats(tag):
        if form.get("type") == "triggered_tags":
            form["triggers"] = list(dict.fromkeys(first_mark(trigger) for trigger in form["triggers"]))
            form["excludes"] = [*form["excludes"], *sorted(marks - {*form["triggers"], *form["excludes"]})]


def first_mark(text: str) -> str:
    """The mark with which ``text`` begins, without the name of a tool; all of ``text`` if it begins with none."""
    match = _SAME_FOR_ALL.match(text)
    return match[0] if match else text


def set_bare_calls_apart(tag: object) -> None:
    """Separate calls in Llama's notation, and allow no brace in the text around them.

    It has no marks: a call is a JSON object. vLLM's parser loses all calls if any other brace stands in the text, and
    the second of two calls with nothing in between. A text with a brace that does not begin a call contains no calls.
    """
    for form in formats(tag):
        if form.get("type") != "triggered_tags" or form["triggers"] != [BARE_CALL]:
            continue
        excluded = "|".join(map(re.escape, [BARE_CALL, *form["excludes"]]))
        text = f"(?!(?s:.*)(?:{excluded}))"
        call = {"type": "or", "elements": [{"type": "tag", **each} for each in form["tags"]]}
        between = {"type": "regex", "pattern": r"; ?|\n{1,2}| "}
        calls: list[dict[str, Any]] = [call]
        if not form["stop_after_first"]:
            calls.append({"type": "star", "content": {"type": "sequence", "elements": [between, call]}})
        if not form["at_least_one"]:
            around = {"type": "regex", "pattern": rf"{text}[^{{]*"}
            calls = [around, *calls, around]
        rewritten: dict[str, Any] = {"type": "sequence", "elements": calls}
        if not form["at_least_one"]:
            # a parser takes an object that begins with one of these keys for a call
            brace = r'[^{]*(?:\{(?!\s*"(?:name|parameters|arguments)")(?s:.*))?'
            rewritten = {"type": "or", "elements": [{"type": "regex", "pattern": text + brace}, rewritten]}
        form.clear()
        form.update(rewritten)


def refuse_names(
    tag: object,
    tools: Sequence[Any],
    special_tokens: Callable[[], Iterable[str]] = tuple,
    notation: str | None = None,
) -> None:
    """Refuse a request's tools for names with which no call can be written, if the tag enforces such calls. Raises as
    `refuse` does. ``special_tokens``: the names of the tokenizer's; ``notation``: vLLM's name of the notation.

    vLLM's notations write a tool's name without escapes, in a mark or between quotes. No parser reads the
    ``{"name": "a"b", …`` that they make of ``a"b``. A name breaks some notation if it contains a quote, a backslash, a
    control character, the character that follows names, a mark, or a special token (which is not text of an answer), or
    if it begins or ends with a space. OpenAI allows only letters, digits, ``_`` and ``-``. Others are in use, so they
    stay allowed.
    """
    for path, name, _ in functions(tools):
        if name == "":
            refuse(f"{place(path)} has an empty name, so calls to it would be lost: name it", f"{path}.name")
        if name is None or _PLAIN_NAME.fullmatch(name):
            continue
        calls = [text for text in _fixed_texts(tag, _HAVE_NAMES) if name in text]
        if not calls:
            continue
        around = ["".join(text.split(name, 1)) for text in calls]
        marks = [mark for text in (*around, *_fixed_texts(tag, _HAVE_NONE)) for mark in _SAME_FOR_ALL.findall(text)]
        after = [text.partition(name)[2][:1] for text in calls]
        breaking = [*_BREAKS_NAMES.findall(name), *marks, *after, *special_tokens()]
        breaking += _ENDS_NAMES.get(notation or "", "")
        if not all(text.partition(name)[0].endswith(_QUOTED) for text in calls):
            breaking += _BLANK_ENDS.findall(name)
        broken = next((part for part in breaking if part and part in name), None)
        if broken is not None:
            refuse(
                f"{place(path)} is named {name!r}, and a name with {broken!r} in it cannot be called: "
                "use letters, digits, '_', '-' and '.'",
                f"{path}.name",
            )


def tags(tag: object) -> Iterator[tuple[str, str]]:
    """The beginning and the end of each innermost part of a tag that has both."""
    for form in formats(tag):
        begin, end = form.get("begin"), form.get("end")
        if any("begin" in inner for inner in formats(form.get("content"))):
            continue
        end = end[0] if isinstance(end, list) and end else end
        if isinstance(begin, str) and isinstance(end, str):
            yield begin, end


def formats(tag: object) -> Iterator[dict[str, Any]]:
    """All objects of a tag, except those within schemas. They may be changed during iteration."""
    todo = [tag]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo.extend(node)
        elif isinstance(node, dict):
            yield node
            todo.extend(part for name, part in node.items() if name not in ("json_schema", "schema"))


def schemas(tag: object) -> Iterator[dict[str, Any]]:
    """The schemas among `formats`. One with the older name of a style gets the present name."""
    for form in formats(tag):
        if form.get("type") == "qwen_xml_parameter":
            form |= {"type": "json_schema", "style": "qwen_xml"}
        if form.get("type") == "json_schema":
            yield form


def _fixed_texts(tag: object, fields: Sequence[str] = (*_HAVE_NAMES, *_HAVE_NONE)) -> Iterator[str]:
    """The literal texts of a tag."""
    for form in formats(tag):
        for field in fields:
            texts = form.get(field)
            for text in texts if isinstance(texts, list) else [texts]:
                if isinstance(text, str):
                    yield text


# --- the functions of a request's tools


def functions(tools: Iterable[Any]) -> Iterator[tuple[str, str | None, Any]]:
    """Path in the request, name in calls, and function of each tool, including those in a namespace of the Responses
    API. A path is ``tools[0].function`` in chats, and ``tools[0]`` or ``tools[0].tools[1]`` in the Responses API.

    If an API has no tools, a client's field of that name may be anything, and holds no tools.
    """
    for i, tool in enumerate(tools if isinstance(tools, Sequence) else ()):
        for j, declared in enumerate(_declared(tool, "tools") or ()):
            name = f"{getattr(tool, 'name', '')}__{getattr(declared, 'name', '')}"
            yield f"tools[{i}].tools[{j}]", name, declared
        function = _declared(tool, "function")
        path = f"tools[{i}]" if function is None else f"tools[{i}].function"
        yield path, getattr(function or tool, "name", None), function or tool


def _declared(tool: Any, name: str) -> Any:
    """A field of a tool; None if its API has no such field: a client's extra field of that name may be anything."""
    return getattr(tool, name, None) if name in getattr(type(tool), "model_fields", (name,)) else None


def place(path: str) -> str:
    """The tool of a function with this path."""
    return path.removesuffix(".function")


def with_parameters(tools: Iterable[Any], parameters: Callable[[Any], Any]) -> list[Any]:
    """Copies of tools. The parameters of each function are what ``parameters`` returns for it."""

    def completed(value: Any) -> Any:
        if (function := _declared(value, "function")) is not None:
            return value.model_copy(update={"function": completed(function)})
        if tools := _declared(value, "tools"):  # a namespace of the Responses API
            return value.model_copy(update={"tools": [*map(completed, tools)]})
        return value.model_copy(update={"parameters": parameters(value)}) if hasattr(value, "parameters") else value

    return [*map(completed, tools)]


def stated_parameters(function: Any) -> dict[str, Any] | None:
    """The schema of a function's arguments, which are an object. A strict function without ``parameters`` has no
    arguments, by OpenAI's reference. If the schema has another type, the arguments may be any object, and the answer
    says so (a strict function is refused: `refuse_no_objects`)."""
    stated: dict[str, Any] | None = function.parameters
    if stated is None:
        closed = {"type": "object", "properties": {}, "additionalProperties": False}
        return closed if getattr(function, "strict", False) else None
    if excludes_objects(function):
        if not getattr(function, "strict", False):
            reason = f"arguments are an object, and that schema has the type {shown(stated['type'])}"
            response_headers.warn(f"the call need not follow the schema of {shown(function.name, 80)}: {reason}")
        return {"type": "object"}
    kind = stated.get("type", ["object"])
    # (The engine refuses a list with anything but names in it.)
    may_be_others = isinstance(kind, list) and "object" in kind and all(name in _TYPES for name in kind)
    return {**stated, "type": "object"} if stated and may_be_others else stated


def excludes_objects(function: Any) -> bool:
    """Whether the ``type`` of a function's parameters excludes objects."""
    kind = function.parameters.get("type") if isinstance(function.parameters, dict) else None
    return bool(kind) and all(name in _NO_OBJECTS for name in (kind if isinstance(kind, list) else [kind]))


def refuse_no_objects(tools: Sequence[Any]) -> None:
    """Refuse a strict tool whose arguments cannot be an object. Raises as `refuse` does."""
    for path, name, function in functions(tools):
        if getattr(function, "strict", False) and hasattr(function, "parameters") and excludes_objects(function):
            message = (
                f"tool {shown(name, 80)}: arguments are an object, and the schema in {place(path)} has the type "
                f"{shown(function.parameters['type'])}: use type 'object', with this value as one of its properties"
            )
            refuse(message, f"{path}.parameters")


def refuse_infinite_numbers(tools: Sequence[Any]) -> None:
    """Refuse a strict tool whose schema has a number such as 1e400, which becomes null on its way into the tag. Raises
    as `refuse` does."""
    for path, name, function in functions(tools):
        if not getattr(function, "strict", False) or not _INFINITE.search(repr(function.parameters)):
            continue
        try:
            json.dumps(function.parameters, allow_nan=False)  # ("inf" may be in a text)
        except ValueError:
            message = f"tool {name!r}: the schema in {place(path)} has a number that is too large, such as 1e400"
            refuse(message, f"{path}.parameters")
