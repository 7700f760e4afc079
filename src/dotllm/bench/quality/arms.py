"""Arms: ways to ask a case. An arm makes the request's body and reads the calls out of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dotllm.bench.quality.cases import Call, Case, undescribed

Body = dict[str, Any]
THINK = "First think step by step, in a few sentences, about what the reply must hold. Do not write JSON yet."
NOW_REPLY = "Now write the reply."


@dataclass(frozen=True)
class Arm:
    """One way to ask."""

    constraint: Literal["", "json_schema", "forced", "auto"] = ""
    """forced, auto: the functions are the request's tools, by ``tool_choice``."""
    strict: bool | None = None
    """The field of the tools; None: it is left out."""
    with_schema: bool = False
    """Whether the prompt has the answer's JSON Schema."""
    described: bool = True
    """Whether the prompt has the descriptions of the functions and of their parameters."""
    sourced: bool = False
    """Whether values are taken from what the user says (``dotllm_source``)."""
    thinks: bool = False
    """Whether the model writes freely first, in a request of its own whose answer the second one shows."""

    def fits(self, case: Case) -> bool:
        """Whether the arm can answer the case correctly: a forced call cannot where no call is right."""
        return case.wants_call or self.constraint in ("", "auto")

    def messages(self, case: Case) -> list[Body]:
        """The conversation without the model's own thoughts. A case's own system message stays, after the arm's."""
        told = [message["content"] for message in case.question if message["role"] == "system"]
        shown = case if self.described else undescribed(case)
        system = "\n".join([shown.system(with_schema=self.with_schema), *told])
        return [{"role": "system", "content": system}, *(m for m in case.question if m["role"] != "system")]

    def constrain(self, case: Case) -> Body:
        """The fields of the request that say what the answer must be."""
        said = "\n".join(str(message["content"]) for message in case.question if message["role"] == "user")
        return self._form(case) | ({"vllm_xargs": {"dotllm_source": said}} if self.sourced else {})

    def _form(self, case: Case) -> Body:
        if self.constraint == "json_schema":
            named = {"name": "answer", "schema": case.schema()}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        if not self.constraint:
            return {}
        choice: Any = "auto"
        if self.constraint == "forced":
            only = case.shape == "arguments"
            choice = {"type": "function", "function": {"name": case.functions[0].name}} if only else "required"
        return {"tools": [function.tool(strict=self.strict) for function in case.functions], "tool_choice": choice}

    def read(self, case: Case, message: Body) -> list[Call] | None:
        """The calls of an answer; None if it cannot be read. An answer without JSON calls nothing, if the arm allows
        that."""
        try:
            if self.constraint in ("forced", "auto"):
                made = message.get("tool_calls") or []
                if not made and case.wants_call:
                    return None
                return [Call(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]
            text = message.get("content") or ""
            document = json.loads(text) if self.constraint else first_json(text, case.shape)
            return case.calls(document)
        except ValueError:
            return None if case.wants_call else []


ARMS = {
    "free": Arm(),
    "prompted": Arm(with_schema=True),
    "json_schema": Arm("json_schema"),
    "prompted json_schema": Arm("json_schema", with_schema=True),
    "tools": Arm("forced"),
    "strict tools": Arm("forced", strict=True),
    "auto": Arm("auto"),
    "strict auto": Arm("auto", strict=True),
    "undescribed json_schema": Arm("json_schema", described=False),
    "sourced json_schema": Arm("json_schema", sourced=True),
    "sourced prompted json_schema": Arm("json_schema", with_schema=True, sourced=True),
    "sourced tools": Arm("forced", sourced=True),
    "sourced strict tools": Arm("forced", strict=True, sourced=True),
    "think": Arm("json_schema", thinks=True),
}


def first_json(text: str, shape: str) -> Any:
    """The first JSON value of the shape's kind in a free text, so that prose and fences around it cost nothing.

    Raises:
        ValueError: there is none.
    """
    decoder = json.JSONDecoder()
    opening = "[" if shape == "calls" else "{"
    at = text.find(opening)
    while at >= 0:
        try:
            return decoder.raw_decode(text, at)[0]
        except ValueError:
            at = text.find(opening, at + 1)
    raise ValueError("no JSON")


def chosen(names: Sequence[str]) -> dict[str, Arm]:
    """The arms of these names.

    Raises:
        ValueError: a name is unknown.
    """
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise ValueError(f"no arm is called {unknown[0]!r}; there are: {', '.join(ARMS)}")
    return {name: ARMS[name] for name in names}
