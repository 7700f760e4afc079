"""A structured answer as a stream: ``OPENAI_BASE_URL=http://localhost:8000/v1 python examples/chat_stream.py``.

A refusal raises an exception before the stream begins. The text so far is always the beginning of a valid document.
"""

from __future__ import annotations

import json

from openai import OpenAI

SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 3, "maxItems": 3}

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Three numbers, as JSON."}],
        response_format={"type": "json_schema", "json_schema": {"name": "numbers", "schema": SCHEMA}},
        stream=True,
    )
    text = ""
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print("\n", json.loads(text))
