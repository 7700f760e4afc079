"""A tool with valid arguments: ``OPENAI_BASE_URL=http://localhost:8000/v1 python examples/tools_strict.py``.

The server needs ``--enable-auto-tool-choice --tool-call-parser NAME`` (hermes for Qwen3).
"""

from __future__ import annotations

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel, ConfigDict, Field


class Move(BaseModel):
    """Move the robot."""

    model_config = ConfigDict(extra="forbid")
    meters: int = Field(ge=1, le=10)
    backwards: bool


if __name__ == "__main__":
    client = OpenAI(api_key="-")
    completion = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Three meters back, please."}],
        tools=[pydantic_function_tool(Move, name="move")],  # sends strict: true
        tool_choice="required",  # with "auto" the model may answer in words
        parallel_tool_calls=False,
    )
    for call in completion.choices[0].message.tool_calls or []:
        print(call.function.name, repr(Move.model_validate_json(call.function.arguments)))
