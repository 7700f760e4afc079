"""An agent that calls tools until it knows enough: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``.

The server needs ``--enable-auto-tool-choice --tool-call-parser NAME`` (hermes for Qwen3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel, ConfigDict, Field

MOST_ROUNDS = 3


class Multiply(BaseModel):
    """Multiply two numbers."""

    model_config = ConfigDict(extra="forbid")
    a: int = Field(ge=0, le=99)
    b: int = Field(ge=0, le=99)


class Answer(BaseModel):
    """The end of the conversation."""

    model_config = ConfigDict(extra="forbid")
    product: int = Field(ge=0, le=9801)


TOOLS: dict[str, tuple[type[Multiply], Callable[[Multiply], str]]] = {
    "multiply": (Multiply, lambda call: str(call.a * call.b)),
}

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    model = client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": "What is 12 times 34? Use the tool, then reply in JSON."}]
    tools = [pydantic_function_tool(kind, name=name) for name, (kind, _) in TOOLS.items()]
    for _ in range(MOST_ROUNDS):
        # With tools, a format and "auto", the model calls a tool or answers; each follows its own schema.
        completion = client.chat.completions.parse(
            model=model, messages=messages, tools=tools, response_format=Answer, parallel_tool_calls=False
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            print("answer:", repr(message.parsed))
            break
        messages.append(message)
        for call in message.tool_calls:
            kind, run = TOOLS[call.function.name]
            result = run(kind.model_validate_json(call.function.arguments))  # always valid
            print("call:", call.function.name, call.function.arguments, "=", result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
