"""Anthropic's Messages API, with a format and with a tool: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``.

The tool needs ``--enable-auto-tool-choice --tool-call-parser NAME`` on the server.
"""

from __future__ import annotations

import json
import os

from anthropic import Anthropic

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "celsius": {"type": "integer", "minimum": -60, "maximum": 60},
    },
    "required": ["city", "celsius"],
    "additionalProperties": False,
}

if __name__ == "__main__":
    client = Anthropic(base_url=os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), api_key="-")
    model = client.models.list().data[0].id
    question = {"role": "user", "content": "Osaka is rainy today, 19 degrees. Reply in JSON."}
    answer = client.messages.create(
        model=model,
        max_tokens=400,
        messages=[question],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    print(answer.stop_reason, json.loads(answer.content[0].text))

    answer = client.messages.create(
        model=model,
        max_tokens=400,
        messages=[question],
        tools=[{"name": "note", "description": "Note the weather.", "input_schema": SCHEMA, "strict": True}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    for part in answer.content:
        if part.type == "tool_use":
            print(answer.stop_reason, part.name, part.input)
