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


CODE = """\
from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="-")
completion = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "What will the weather be?"}}],
    response_format={{"type": "json_schema", "json_schema": {{"name": "weather", "schema": SCHEMA}}}},
    max_completion_tokens=400,
)
answer, reason = completion.choices[0].message.content, completion.choices[0].finish_reason
"""
"""The client's code as shown to the reader, and as it runs."""


def code(url: str, model: str, *, constrained: bool = True) -> str:
    """`CODE` for a server; without the constraint its line is missing, and the answer is shorter."""
    text = CODE.format(url=url, model=model)
    if constrained:
        return text
    lines = [line for line in text.splitlines(keepends=True) if "response_format" not in line]
    return "".join(lines).replace("400", "60")


def ask(url: str, model: str, *, constrained: bool = True) -> tuple[str, str]:
    """(Answer, why it ended), by the code that the reader is shown."""
    names: dict[str, Any] = {"SCHEMA": SCHEMA}
    exec(code(url, model, constrained=constrained), names)
    return names["answer"] or "", names["reason"]


def verdict(answer: str, reason: str) -> str:
    """The answer as people write JSON, whether it is valid, and why it ended."""
    import jsonschema

    try:
        document = json.loads(answer)
        jsonschema.validate(document, SCHEMA)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{answer}\nNOT valid ({error}); finish_reason: {reason}"
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return f"{text}\nvalid under the schema (jsonschema); finish_reason: {reason}"
