"""Changes to the structural tags that vLLM makes of tools, so that its own parsers read each call back whole.

The functions change a parsed tag in place. `constraints` parses and dumps it, once per request.

*Marks.* vLLM's tool parsers look for their marks anywhere in the text of a call. A string may contain ``</tool_call>``,
and a user may talk any model into writing one. Hermes' parser ends the call there, and returns half of the arguments,
no call, or a call that nobody made. A mark that is a special token does the same harm if a model spells it in ordinary
tokens. vLLM excludes marks in free text for some parsers, and in JSON for ``BeamParser`` alone (0.33); this module does
so in the JSON of all parsers. A mark is a text in pointed brackets, in a fixed
text of the tag. If it names the tool (``<function=name>``), only the part before the name counts. No string may hold a
mark, no raw string what begins a parameter. A JSON string may hold it escaped (``\\u003c/tool_call>``).

*Numbers.* ``1e400`` is JSON, and any schema takes it for a number. Most of vLLM's tool parsers read a call with
Python's ``json`` and write its arguments anew: a number that does not fit into a double comes back as ``Infinity``,
which is not JSON. Other parsers make a string of it, and Anthropic's API answers with an error. So calls, and other
JSON in such a tag, have only numbers that are read as finite (`languages.json_schema.numbers.finite_numbers`).

*Objects.* For a tool without ``strict: true``, vLLM leaves the schema to the prompt and takes any JSON value as
arguments, so ``true`` is a call. The same holds for a strict tool whose schema has ``properties`` and no ``type``.
OpenAI's clients get such a call, Anthropic's an error. So "any JSON" means "any object" here.

*Lines.* In the patterns of two parsers of vLLM 0.32 (deepseek_v3 and deepseek_v31) ``.`` matches no line break, and a
call whose arguments are JSON on several lines is lost. So that JSON has at most single spaces.

The parsers of Qwen 3's notation take a line break off each end of a value, because models are taught to write them.
So a string of an enumeration or a pattern may have them around it, and begins and ends with none itself.

*Names.* vLLM's notations write a tool's name as it is, in a mark or between quotes. No parser reads the ``{"name":
"a"b", …`` that they make of ``a"b``. A name breaks some notation if it contains a quote, a backslash, a control
character, the character that follows names, a mark, or a special token (which is no text of an answer). OpenAI allows
only letters, digits, ``_`` and ``-``. Other characters are in use, and stay allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dotllm.vllm_plugin.frontend.validation import refuse

_MARK = re.compile(r"<[^<>\n]+>")
_SAME_FOR_ALL = re.compile(r"<[^<>=]+=|<[^<>]+>")
_WITHOUT_EXCLUDES = ("cohere_xml", "minimax_m3_xml")
_HAVE_NAMES, _HAVE_NONE = ("begin", "value"), ("end", "separator", "triggers")  # fields with fixed text
_MARK_OF_ONE_LINE = "<｜tool▁sep｜>"
"""It stands in the notations whose calls vLLM reads on one line only."""
_INFINITE = re.compile(r"\b(inf|nan)\b")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]*")
_BREAKS_NAMES = re.compile(r'["\\\0-\x1f\x7f]')


def exclude_marks(tag: object) -> None:
    """No string of the tag's schemas holds a mark."""
    from dotllm.languages.structural_tag.styles import STYLES

    marks = {mark for text in _fixed_texts(tag) for mark in _MARK.findall(text)}
    same_for_all = {found[0] for mark in marks if (found := _SAME_FOR_ALL.match(mark))}
    for schema in _schemas(tag):
        style = schema.get("style", "json")
        begins_parameter = {STYLES[style].before} if style in STYLES else set[str]()
        excludes = sorted(same_for_all | begins_parameter)
        if excludes and not schema.get("excludes") and style not in _WITHOUT_EXCLUDES:
            schema["excludes"] = excludes


def require_finite_numbers(tag: object) -> None:
    """The tag's schemas have only numbers that are read as finite."""
    for schema in _schemas(tag):
        schema["finite_numbers"] = True


def says_kinds(tag: object) -> bool:
    """Whether all arguments in a tag's calls are written so that a reader knows their types."""
    from dotllm.languages.structural_tag.styles import STYLES

    styles = {schema.get("style", "json") for schema in _schemas(tag)} - {"json"}
    return all(style in STYLES and STYLES[style].says_kinds for style in styles)


def keep_calls_on_one_line(tag: object) -> None:
    """No white space but spaces in the JSON of a tag whose parser needs that."""
    if any(_MARK_OF_ONE_LINE in text for text in _fixed_texts(tag)):
        for schema in _schemas(tag):
            schema["whitespace_pattern"] = " ?"


def let_strings_be_trimmed(tag: object) -> None:
    """Line breaks may stand around the strings of a tag whose parser takes them off."""
    for schema in _schemas(tag):
        if schema.get("style") == "qwen_xml":
            schema["style"] = "qwen_trimmed_xml"


def require_objects(tag: object) -> bool:
    """Every schema that names no type is one of objects; whether there was one."""
    found = False
    for one in _formats(tag):
        if one.get("type") == "json_schema" and one.get("style", "json") == "json":
            schema = {} if one.get("json_schema") is True else one.get("json_schema")
            if isinstance(schema, dict) and "type" not in schema:
                one["json_schema"] = {"type": "object", **schema}
                found = True
    return found


def functions(tools: Iterable[Any]) -> Iterator[tuple[tuple[int, ...], str | None, Any]]:
    """Indices, name in calls, and function of each tool, those in a namespace of the Responses API included."""
    for i, tool in enumerate(tools):
        for j, one in enumerate(getattr(tool, "tools", None) or ()):
            yield (i, j), f"{getattr(tool, 'name', '')}__{getattr(one, 'name', '')}", one
        function = getattr(tool, "function", tool)  # the Responses API has no function in its tools
        yield (i,), getattr(function, "name", None), function


def place(indices: tuple[int, ...]) -> str:
    """Where in a request a function of `functions` stands."""
    return ".".join(f"tools[{index}]" for index in indices)


def refuse_names(tag: object, tools: Iterable[object], special_tokens: Callable[[], Iterable[str]] = tuple) -> None:
    """Refuse a request's tools for names of which no call can be made, where the tag enforces calls of them. Raises as
    `refuse`. ``special_tokens``: names of the tokenizer's."""
    for at, name, _ in functions(tools):
        if name == "":
            refuse(f"{place(at)} has an empty name, and a call of it would be lost: name it", "tools")
        if name is None or _PLAIN_NAME.fullmatch(name):
            continue
        calls = [text for text in _fixed_texts(tag, _HAVE_NAMES) if name in text]
        if not calls:
            continue
        around = ["".join(text.split(name, 1)) for text in calls]
        marks = [mark for text in (*around, *_fixed_texts(tag, _HAVE_NONE)) for mark in _SAME_FOR_ALL.findall(text)]
        behind = [text.partition(name)[2][:1] for text in calls]
        breaking = [*_BREAKS_NAMES.findall(name), *marks, *behind, *special_tokens()]
        broken = next((part for part in breaking if part and part in name), None)
        if broken is not None:
            refuse(
                f"{place(at)} is named {name!r}, and no call can be made of a name with {broken!r} in it: "
                "use letters, digits, '_', '-' and '.'",
                "tools",
            )


def refuse_infinite_numbers(tools: Iterable[Any]) -> None:
    """Refuse a schema of a strict tool with a number such as 1e400, which is written as null on its way into the tag.
    Raises as `refuse`."""
    for at, name, function in functions(tools):
        if not getattr(function, "strict", False) or not _INFINITE.search(repr(function.parameters)):
            continue
        try:
            json.dumps(function.parameters, allow_nan=False)  # (it may have been a text)
        except ValueError:
            refuse(f"tool {name!r}: the schema in {place(at)} has a number like 1e400, too large", "tools")


def _formats(tag: object) -> Iterator[dict[str, Any]]:
    """All objects of a tag but what is in schemas; they may be changed while one goes through them."""
    todo = [tag]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            yield one
            todo.extend(part for name, part in one.items() if name not in ("json_schema", "schema"))


def _schemas(tag: object) -> Iterator[dict[str, Any]]:
    """Those of `_formats` that are schemas; one under the older name of a style gets the present one."""
    for one in _formats(tag):
        if one.get("type") == "qwen_xml_parameter":
            one |= {"type": "json_schema", "style": "qwen_xml"}
        if one.get("type") == "json_schema":
            yield one


def _fixed_texts(tag: object, fields: Sequence[str] = (*_HAVE_NAMES, *_HAVE_NONE)) -> Iterator[str]:
    """What is written as it is."""
    for one in _formats(tag):
        for field in fields:
            texts = one.get(field)
            for text in texts if isinstance(texts, list) else [texts]:
                if isinstance(text, str):
                    yield text
