"""The demo's request, and the ones a reader may try next."""

from __future__ import annotations

import json
from typing import Any

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Lisbon", "Osaka", "Nairobi", "Montréal"]},
        "date": {"type": "string", "pattern": "^2027-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"},
        "celsius": {"type": "integer", "minimum": -20, "maximum": 45},
        "sky": {"type": "array", "items": {"enum": ["sun", "cloud", "rain", "snow"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "date", "celsius", "sky"],
    "additionalProperties": False,
}
QUESTION = "What will the weather be?"

NEXT = r"""
Three requests to try next, in another terminal:

1. A regular expression:
   curl -s {url}/v1/chat/completions -H 'content-type: application/json' -d '{{"model": "{model}",
     "messages": [{{"role": "user", "content": "A phone number?"}}],
     "structured_outputs": {{"regex": "\\+[1-9][0-9]{{1,2}}( [0-9]{{2,4}}){{3}}"}}}}'

2. A choice:
   curl -s {url}/v1/completions -H 'content-type: application/json' -d '{{"model": "{model}", "prompt": "2 + 2 =",
     "max_tokens": 50, "structured_outputs": {{"choice": ["four", "fourteen", "forty"]}}}}'

3. What cannot be enforced is refused, never ignored (HTTP 400):
   curl -s {url}/v1/completions -H 'content-type: application/json' -d '{{"model": "{model}", "prompt": "x",
     "structured_outputs": {{"regex": "(a+)\\1"}}}}'
"""


def ask(url: str, model: str) -> str:
    """The answer to `QUESTION` under `SCHEMA`, by the ``openai`` client."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120.0, max_retries=0)
    completion = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        response_format={"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}},
        temperature=1.0,
        max_completion_tokens=400,
    )
    return completion.choices[0].message.content or ""


def request_text() -> str:
    """The request, as shown to the reader."""
    schema = json.dumps(SCHEMA, ensure_ascii=False, indent=2)
    return f"{QUESTION}\nresponse_format = json_schema:\n{schema}"
