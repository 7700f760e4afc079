"""Recognises constraints in fields that an API does not read, by their names and by their values.

Clients of other servers write a constraint where those servers look for it: Ollama in ``format``, llama.cpp in
``grammar``, TGI in ``parameters.grammar``, SGLang in ``sampling_params``, NIM in ``nvext``, and a client without an SDK
in the SDK's ``extra_body``. No list of such fields is complete, so unknown fields are searched, four objects deep and
through lists. A field is a constraint if its name says so (`_NAMED`, also after a word for the answer:
``response_type``, ``output_regex``), or if its value is a JSON Schema, a grammar, or an object with a value and a type
like ``regex``. The unknown fields of a request may form a schema together, if a client has spread one among them.

Within an object that is not one of `_WRAPPERS`, a name with other meanings (``format``, ``regex``) decides nothing: the
value does. Fields that an API's reference defines as notes (``metadata``) are not examined. An unknown field that
repeats the request's own constraint is not a conflict: guidance's client sends ``guided_grammar`` with the same
``structured_outputs.grammar``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dotllm.languages.json_schema.reading.dialect import ASSERTIONS
from dotllm.languages.json_schema.reading.subschemas import ANNOTATIONS, children
from dotllm.vllm_plugin.specification import KINDS, OPTIONS

DEPTH = 4
"""How many levels of objects are searched within an unknown field."""
_LISTS = 8
"""How many levels of nested lists are searched."""
_LEVELS = 8
"""How many levels of a value are examined to tell whether it is a schema."""

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_KEYWORDS = frozenset().union(*ASSERTIONS.values(), ANNOTATIONS) | {
    "$schema", "$id", "$anchor", "$defs", "$dynamicAnchor", "$vocabulary", "definitions", "example",
    "contentEncoding", "contentMediaType", "nullable", "strict", "name",
}  # fmt: skip

_NOTES = ("metadata", "prediction", "user", "prompt_cache_key", "safety_identifier")
_WRAPPERS = frozenset({
    "extra_body", "extra_json", "extra_params", "model_kwargs", "additional_model_request_fields",
    "sampling_params", "parameters", "nvext", "generation_config", "inference_config", "options", "vllm_xargs",
})  # fmt: skip
"""Fields of clients and other servers that hold fields of a request."""

SINGLE_CALL = _PARALLEL, _NOT_PARALLEL = "parallel_tool_calls", "disable_parallel_tool_use"
"""OpenAI's and Anthropic's fields that ask for at most one call: with false, and with true."""

_GUIDED, _NOT_GUIDED = "guided_", ("decoding_backend", "backend")
_NAMED = {
    **{name: name for name in (*KINDS, *OPTIONS)},
    **dict.fromkeys(("guided_decoding", "guided_options", "structured_output", "structured_outputs",
                     "structured_generation"), "structured_outputs"),
    **dict.fromkeys(("response_format", "text_format", "output_format", "format"), "format"),
    **dict.fromkeys(("schema", "json_schema", "response_schema", "response_model", "output_model"), "json"),
    **dict.fromkeys(("json_mode", "json_output"), "json_object"),
    **dict.fromkeys(("ebnf", "gbnf", "lark"), "grammar"),
    **dict.fromkeys(("enum", "choices"), "choice"),
    **dict.fromkeys(("pattern", "regexp"), "regex"),
    **dict.fromkeys(("tools", "functions", "function_declarations", "tool_config"), "tools"),
    **dict.fromkeys(("tool_choice", "function_call"), "tool_choice"),
    **dict.fromkeys(SINGLE_CALL, "single_call"),
}  # fmt: skip
"""The field that a field of this name stands for: one of ``structured_outputs``, or one of the request."""
_LAST_WORDS = {"schema": "json", "grammar": "grammar", "regex": "regex"}
"""The same, by the last word of any other name, if the value agrees."""
_SURE = frozenset({
    *OPTIONS, "structural_tag", "guided_decoding", "guided_options", "ebnf", "gbnf", "disable_parallel_tool_use",
})  # fmt: skip
"""The names that mean a constraint in every object. In one that is not a request, other names leave it to the value:
a filter has a ``regex``, a logger ``json_output``."""
_ANSWER = ("response", "output", "answer", "result", "return", "reply", "completion", "generation")
"""Words that may precede a name of `_NAMED` without changing its meaning."""
_KIND = ("type", "mode", "format", "mime_type", "content_type", "kind")
"""Words that may follow one of `_ANSWER`, in the name of a field whose value says what kind of answer is wanted."""
_PREFIX, _OURS = "dotllm_", "vllm_xargs"
"""The prefix of our fields, and the kind of constraint that such a field is where it is not read."""

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_RULE = re.compile(r"(?m)^\s*(%llguidance\b|<?[\w-]+>?\s*::=)")
_LARK, _TERMINAL = re.compile(r"(?m)^\s*\??start\s*:"), re.compile(r'"|/[^/\n]+/')
_FORMATS = ("json", "json_object", "json_schema", "regex", "grammar", "structural_tag")
_TYPED = (*_FORMATS, "ebnf", "gbnf", "lark", "cfg", "choice")
_UNMISTAKABLE = ("json_object", "json_schema", "structural_tag")
_VALUES = (*_TYPED, "value", "pattern", "schema", "definition", "choices", "syntax", "enum")
"""The members that hold the constraint in an object with a type of `_TYPED`."""
_NO = ("", "0", "false", "no", "off", "none", "null", "text", "never", "disabled")


class Constraint(NamedTuple):
    """A constraint that would not be enforced: where it is, what it asks for (`_NAMED`), and its value."""

    path: str
    kind: str
    value: object


def constraints_in(
    fields: Mapping[str, object], place: str = "", depth: int = 0, *, is_request: bool = True
) -> Iterator[Constraint]:
    """Constraints in ``fields``, none of which the API reads; ``place`` is the path of the object that holds them.
    ``is_request``: whether it holds fields of a request."""
    spread = {name: value for name, value in fields.items() if name in _KEYWORDS and value != ""}
    if depth == 0 and is_schema(spread):
        first = next(iter(spread))
        yield Constraint(f"{place}.{first}" if place else first, "json", spread)
    for field, value in fields.items():
        name = _CAPITAL.sub("_", str(field)).replace("-", "_").lower()
        if value is None or (depth == 0 and (name in _NOTES or name.endswith("metadata"))):
            continue
        path = f"{place}.{field}" if place else str(field)
        is_wrapper = name in _WRAPPERS and isinstance(value, dict) and not place
        kind = None if is_wrapper and is_schema(value) else _asked(name, value, is_request=is_request)
        if kind is not None:
            yield Constraint(path, kind, value)
        elif is_wrapper and isinstance(value, dict):
            yield from constraints_in(value, path)
        elif depth < DEPTH:
            for inner in _objects(value):
                asked = _type(inner)
                if asked is not None:
                    yield Constraint(path, asked, inner)
                else:
                    yield from constraints_in(inner, path, depth + 1, is_request=is_request and name in _WRAPPERS)


def _objects(value: object, lists: int = _LISTS) -> Iterator[dict[str, Any]]:
    """``value`` if it is an object, or the objects in it if it is a list, through up to ``lists`` nested lists."""
    if isinstance(value, dict):
        yield value
    for inner in value if isinstance(value, list) and lists else ():
        yield from _objects(inner, lists - 1)


def is_repeated(constraint: Constraint, read: Mapping[str, object]) -> bool:
    """Whether the fields that the API reads repeat ``constraint``."""
    if constraint.kind == "single_call":
        return read.get(_PARALLEL) is False or _member(read.get("tool_choice"), _NOT_PARALLEL) is True
    said = [value for value in _said(read, constraint.kind) if value is not None]
    return _written(constraint) in [_written(constraint._replace(value=value)) for value in said]


def is_schema(value: object, levels: int = _LEVELS) -> bool:
    """Whether a value, or the JSON in a text, is a JSON Schema that asks for something: it has ``$schema`` or ``$ref``,
    a keyword holds such a schema, or a keyword restricts values and no member is foreign to schemas."""
    value = _parsed(value)
    if not isinstance(value, dict) or not levels:
        return False
    if any(isinstance(child, dict) and is_schema(child, levels - 1) for child, _ in children(value)):
        return True
    if isinstance(value.get("$schema"), str) or isinstance(value.get("$ref"), str):
        return True
    types = value.get("type")
    types = types if isinstance(types, list) else [types]
    says = (
        (bool(types) and all(inner in _TYPES for inner in types))
        or isinstance(value.get("enum"), list)
        or (isinstance(value.get("pattern"), str) and len(value) > 1)  # (alone, it may describe a log or a file)
        or isinstance(value.get("required"), list)
        or "const" in value
    )
    return says and all(name in _KEYWORDS or str(name).startswith("x-") for name in value)


def _asked(name: str, value: Any, *, is_request: bool) -> str | None:
    """The kind of constraint that a field asks for, or None. ``is_request``: whether it is a field of a request."""
    if name.startswith(_GUIDED) and name not in _NAMED:
        rest = name.removeprefix(_GUIDED)
        if rest in _NOT_GUIDED:
            return None
        if is_request or rest in _NAMED:
            return _NAMED.get(rest, "structured_outputs")
    if name.startswith(_PREFIX):
        return _OURS
    begins, _, rest = name.partition("_")
    if begins in _ANSWER and name not in _NAMED:
        if rest in _KIND and isinstance(value, str) and (_says_json(value) if is_request else value in _UNMISTAKABLE):
            return "format"
        name = rest
    kind = _NAMED.get(name)
    if kind is not None and (_asks(name, kind, value) if is_request or name in _SURE else _fits(kind, value)):
        # TGI's ``grammar`` holds schemas and regular expressions, too.
        return (_type(value) or kind) if kind == "grammar" else kind
    if kind == "json" and value is True and is_request:
        return "json_object"
    if is_schema(value):
        return "json"
    if _is_grammar(value):
        return "grammar"
    if (asked := _type(value)) is not None:
        return asked
    kind = _LAST_WORDS.get(name.rpartition("_")[2])
    if kind == "regex":
        return kind if is_request and isinstance(value, str) and value else None
    return kind if kind is not None and _fits(kind, value) else None


def _asks(name: str, kind: str, value: Any) -> bool:
    """Whether the value of a field asks for something, where its name, in `_NAMED`, says that it is a constraint."""
    if kind == "single_call":
        return str(value).strip().lower() == ("false" if name == _PARALLEL else "true")
    if kind in ("json_object", "disable_any_whitespace", "disable_additional_properties"):
        return str(value).strip().lower() not in _NO if isinstance(value, str | int) else bool(value)
    if kind == "structured_outputs":
        if not isinstance(value, dict):
            return bool(value)
        # An empty schema or text asks for something, too.
        return any(part not in (None, False) for field, part in value.items() if "backend" not in str(field))
    if kind == "format":
        return value in _FORMATS if isinstance(value, str) else bool(value) and _member(value, "type") != "text"
    if kind == "tool_choice":
        return bool(value) and value not in ("auto", "none")
    # An empty schema asks for JSON, an empty list of tools for nothing.
    return isinstance(value, str | dict | list) and (bool(value) or (kind == "json" and isinstance(value, dict)))


def _fits(kind: str, value: object) -> bool:
    """Whether a value looks like a constraint, where the name alone does not decide."""
    if kind == "structured_outputs":
        return isinstance(value, dict) and any(value.get(name) not in (None, False) for name in _NAMED)
    if kind == "format":
        return isinstance(value, str) and value in _UNMISTAKABLE
    if kind == "grammar":
        return _is_grammar(value) or (isinstance(value, dict) and {"type", "value"} <= value.keys())
    return kind == "json" and (is_schema(value) or (isinstance(value, dict) and any(map(is_schema, value.values()))))


def _type(value: object) -> str | None:
    """What an object with a type asks for, such as ``{"type": "regex", "value": …}``; None if nothing."""
    if not isinstance(value, dict) or value.get("type") not in _TYPED:
        return None
    held = [part for field in _VALUES if (part := value.get(field)) not in (None, "", [], {})]
    return _NAMED.get(value["type"], "grammar") if held or value["type"] in _UNMISTAKABLE else None


def _says_json(value: str) -> bool:
    return value in _FORMATS or value.rpartition("/")[2].partition(";")[0].rpartition("+")[2] == "json"


def _is_grammar(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return _RULE.search(value) is not None or bool(_LARK.search(value) and _TERMINAL.search(value))


def _parsed(value: object) -> object:
    """``value``, or the JSON object in a text."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _written(constraint: Constraint) -> str:
    value = _parsed(constraint.value)
    if constraint.kind == "structured_outputs" and isinstance(value, dict):
        value = {name: part for name, part in value.items() if part not in (None, False)}
    return json.dumps(value, default=repr)


def _said(read: Mapping[str, object], kind: str) -> list[object]:
    """What the fields that the API reads say about ``kind``."""
    structured = read.get("structured_outputs")
    fields = structured if isinstance(structured, dict) else {}
    flat = [_member(read.get(field), "format") for field in ("text", "output_config")]
    forms = [read.get("response_format"), *flat]
    if kind == "json":
        named = _member(_member(forms[0], "json_schema"), "schema")
        return [fields.get(kind), named, *(_member(form, "schema") for form in flat)]
    if kind == "json_object":
        return [fields.get(kind), *(True for form in forms if _member(form, "type") == kind)]
    if kind == "format":
        return forms
    if kind == "tools":
        tools = read.get("tools")
        return [tools, [_member(tool, "function") for tool in tools] if isinstance(tools, list) else None]
    return [fields.get(kind), *(form for form in forms if _member(form, "type") == kind), read.get(kind)]


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None
