"""The faults of answers: a rule puts each wrong answer into a class.

A judge says that an answer is wrong. Here it is compared with the right answer, property by property in the order in
which the model wrote them, since a model goes on from its first mistake. The first difference decides the class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dotllm.bench.quality.cases import Call, Case, Schema

LEFT_OUT = ""
"""Among the values that a case accepts, this one means that the property may be left out."""
UNKNOWN = "another difference"


def class_of(case: Case, calls: Sequence[Call]) -> str:
    """The class of calls that the case's judge finds wrong."""
    if len(calls) != len(case.wanted):
        return "too few calls" if len(calls) < len(case.wanted) else "too many calls"
    schemas = {function.name: function.parameters for function in case.functions}
    left = list(case.wanted)
    faults = []
    for call in calls:
        # Compare with the nearest wanted call.
        compared = [(fault_of_call(case, call, schemas.get(call.name, {}), wanted), wanted) for wanted in left]
        (_, fault), wanted = min(compared, key=lambda pair: pair[0][0])
        left.remove(wanted)
        faults.append(fault)
    return next(filter(None, faults), UNKNOWN)


def fault_of_call(case: Case, call: Call, schema: Schema, wanted: tuple[str, Mapping[str, Sequence[Any]]]) -> Any:
    """(number of properties that differ, the class of the first one; "" for a right call)."""
    name, accepted = wanted
    if call.name != name:
        return 1000, "another function"
    if not isinstance(call.arguments, dict):
        return 1000, UNKNOWN
    faults = [_of_property(case, schema, key, value, accepted.get(key)) for key, value in call.arguments.items()]
    faults += [
        "a property is missing"
        for key, values in accepted.items()
        if key not in call.arguments and not _may_lack(values)
    ]
    named = list(filter(None, faults))
    return len(named), named[0] if named else ""


def _may_lack(values: Sequence[Any]) -> bool:
    return LEFT_OUT in values


def _of_property(case: Case, schema: Schema, key: str, value: Any, accepted: Sequence[Any] | None) -> str:
    if accepted is None:
        return "a property that nothing was said of"
    if any(same(value, wanted) for wanted in accepted):
        return ""
    required = key in schema.get("required", ())
    if not required and _may_lack(accepted):
        return "a property that nothing was said of"
    return value_class(case, schema.get("properties", {}).get(key, {}), value, accepted)


def value_class(case: Case, schema: Any, value: Any, accepted: Sequence[Any]) -> str:
    """The class of a value that is none of ``accepted``."""
    schema = schema if isinstance(schema, dict) else {}
    if isinstance(value, bool):
        return "boolean: the other one"
    if "enum" in schema:
        return "enum: another member"
    if isinstance(value, (int, float)):
        return "number: not in the question" if not _has_number(case, value) else "number: another one of the question"
    if isinstance(value, str):
        if any(isinstance(wanted, str) and _overlaps(value, wanted) for wanted in accepted):
            return "string: more, or less, than was wanted"
        if re.fullmatch(r"\d{4}-\d\d-\d\d.*", value):
            return "string: another date"
        plain = _plain(value)
        if not plain:
            return "string: nothing in it"
        return "string: another one of the question" if plain in _plain(_said(case)) else "string: not in the question"
    if isinstance(value, list):
        lists = [wanted for wanted in accepted if isinstance(wanted, list)]
        if any(len(wanted) < len(value) for wanted in lists):
            repeats = any(same(x, y) for i, x in enumerate(value) for y in value[:i])
            return "list: an item again and again" if repeats else "list: too many items"
        return "list: too few items" if any(len(wanted) > len(value) for wanted in lists) else "list: other items"
    return "object: another one" if isinstance(value, dict) else UNKNOWN


def class_of_cut(text: str) -> str:
    """The class of a text that ``max_tokens`` has cut off: what it was in the middle of."""
    if not text:  # the server leaves out an incomplete call
        return "cut: a call"
    stack, in_string, escaped = [], False, False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            stack.append(character)
        elif character in "]}" and stack:
            stack.pop()
    if not in_string and not text[-40:].strip():
        return "cut: white space ran on"
    if "[" in stack:
        return "cut: a list ran on"
    if in_string:
        return "cut: a string ran on"
    return "cut: a number ran on" if re.search(r"\d{20}$", text) else "cut: in an object"


def same(given: Any, wanted: Any) -> bool:
    """Whether two values are equal: strings without case, spaces and punctuation; 3.0 is 3; a wanted object lists the
    accepted values of each property."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, str) and isinstance(wanted, str):
        return _plain(given) == _plain(wanted)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(same, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return all(key in wanted and _is_one(value, wanted[key]) for key, value in given.items()) and all(
            key in given or (isinstance(values, list) and _may_lack(values)) for key, values in wanted.items()
        )
    return bool(given == wanted)


def _is_one(value: Any, wanted: Any) -> bool:
    return same(value, wanted) or (isinstance(wanted, list) and any(same(value, member) for member in wanted))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _overlaps(given: str, wanted: str) -> bool:
    a, b = _plain(given), _plain(wanted)
    return bool(a and b) and (a in b or b in a)


def _said(case: Case) -> str:
    return "\n".join(str(message["content"]) for message in case.question if message["role"] == "user")


def _has_number(case: Case, value: float) -> bool:
    return any(float(number) == value for number in re.findall(r"\d+(?:\.\d+)?", _said(case).replace(",", "")))
