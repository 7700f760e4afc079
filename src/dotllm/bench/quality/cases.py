"""A question whose right answers are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

Schema = dict[str, Any]


class Call(NamedTuple):
    """A function's name and its arguments."""

    name: str
    arguments: Any


@dataclass(frozen=True)
class Function:
    """A function that a model may call; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: Schema

    def tool(self, *, strict: bool | None) -> dict[str, Any]:
        """The function as a request's tool. ``strict`` None leaves out the field."""
        function: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function if strict is None else function | {"strict": strict}}


Shape = Literal["arguments", "call", "calls"]
"""Shapes of an answer without tools: the arguments of the only function, a call, or a list of calls."""


@dataclass(frozen=True)
class Case:
    """A question. ``judge`` returns "" for right calls, or the class of the fault."""

    name: str
    set: str
    question: Sequence[dict[str, Any]]
    functions: Sequence[Function]
    shape: Shape
    judge: Callable[[Sequence[Call]], str]
    instruction: str = ""
    """The content that the prompt asks for; "" asks for the functions themselves."""
    wants_call: bool = True
    """Whether a right answer has a call."""
    wanted: Sequence[tuple[str, Mapping[str, Sequence[Any]]]] = ()
    """The right calls: the function, and the values that each property may have ("": it may be left out)."""
    root: Schema = field(default_factory=dict)
    """Further keywords at the root of the answer's schema."""

    def schema(self) -> Schema:
        """The schema of an answer without tools."""
        return self._schema() | self.root

    def _schema(self) -> Schema:
        if self.shape == "arguments":
            return self.functions[0].parameters
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": function.parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for function in self.functions
        ]
        call = calls[0] if len(calls) == 1 else {"anyOf": calls}
        return call if self.shape == "call" else {"type": "array", "items": call, "minItems": 1}

    def system(self, *, with_schema: bool) -> str:
        """The system message."""
        if self.instruction:
            text = self.instruction
        else:
            functions = "\n".join(json.dumps(function.tool(strict=None)["function"]) for function in self.functions)
            reply = {
                "arguments": "Reply with its arguments as one JSON object.",
                "call": 'Reply with one call as a JSON object: {"name": …, "arguments": {…}}.',
                "calls": 'Reply with all calls as a JSON array of objects: [{"name": …, "arguments": {…}}].',
            }[self.shape]
            if not self.wants_call:
                reply = "Where no function helps, say so in words. " + reply
            text = f"You can call:\n{functions}\n{reply}"
        return text + f"\nThe reply must fit this JSON Schema:\n{json.dumps(self.schema())}" if with_schema else text

    def calls(self, document: Any) -> list[Call]:
        """The calls in an answer without tools.

        Raises:
            ValueError: the document does not have the case's shape.
        """
        if self.shape == "arguments":
            return [Call(self.functions[0].name, document)]
        listed = [document] if self.shape == "call" else document
        if not isinstance(listed, list) or not all(
            isinstance(x, dict) and {"name", "arguments"} <= set(x) for x in listed
        ):
            raise ValueError("not calls")
        return [Call(str(call["name"]), call["arguments"]) for call in listed]

    def valid(self, calls: Sequence[Call]) -> bool:
        """Whether each call names an existing function, and its arguments fit the schema (by `jsonschema`)."""
        import jsonschema

        schemas = {function.name: function.parameters for function in self.functions}
        return all(
            call.name in schemas and jsonschema.Draft202012Validator(schemas[call.name]).is_valid(call.arguments)
            for call in calls
        )


def closed(case: Case) -> Case:
    """The case with ``additionalProperties: false`` in each schema that lists properties and says nothing of others."""
    functions = [replace(function, parameters=_closed(function.parameters)) for function in case.functions]
    return replace(case, functions=functions)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: _closed(part) for key, part in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        parts.setdefault("additionalProperties", False)
    return parts


def undescribed(case: Case) -> Case:
    """The case without the descriptions of its functions and of their parameters."""
    functions = [replace(f, description="", parameters=_undescribed(f.parameters)) for f in case.functions]
    return replace(case, functions=functions)


def _undescribed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_undescribed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A property may be called "description": its value is a schema, not a text.
    return {k: _undescribed(part) for k, part in schema.items() if k != "description" or not isinstance(part, str)}
