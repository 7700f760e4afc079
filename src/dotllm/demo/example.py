"""The demo's requests, and suggestions for the next ones.

Each request is code as a user would write it. The reader sees exactly the code that runs. It ends with a variable
``answer``. The client's own classes parse the answer, so an invalid one raises.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Example(NamedTuple):
    """A request whose right answer is known."""

    title: str
    question: str
    code: str
    """The code, with URL, MODEL and QUESTION as placeholders. Each example continues the one before it."""
    expected: str
    """The answer, as text."""


EXAMPLES = (
    Example(
        "README's first example: a Pydantic object",
        "Osaka is rainy today, 19 degrees. Reply in JSON.",
        """\
from typing import Literal
from openai import OpenAI
from pydantic import BaseModel, Field

class Weather(BaseModel):
    city: str = Field(max_length=40)
    celsius: int = Field(ge=-60, le=60)
    sky: Literal["sun", "cloud", "rain", "snow"]

client = OpenAI(base_url="URL/v1", api_key="-")
completion = client.chat.completions.parse(model="MODEL", response_format=Weather,
    messages=[{"role": "user", "content": "QUESTION"}])
answer = completion.choices[0].message.parsed
""",
        "city='Osaka' celsius=19 sky='rain'",
    ),
    Example(
        "a tool call",
        "Note the weather: Osaka, rain, 19 degrees.",
        """\
from openai import pydantic_function_tool

completion = client.chat.completions.create(model="MODEL",
    messages=[{"role": "user", "content": "QUESTION"}],
    tools=[pydantic_function_tool(Weather, name="note_weather")], tool_choice="required")
call = completion.choices[0].message.tool_calls[0].function
answer = f"{call.name}: {Weather.model_validate_json(call.arguments)}"
""",
        "note_weather: city='Osaka' celsius=19 sky='rain'",
    ),
    Example(
        "a regular expression",
        "In which year did the Second World War end?",
        """\
completion = client.chat.completions.create(model="MODEL",
    messages=[{"role": "user", "content": "QUESTION"}],
    extra_body={"structured_outputs": {"regex": "(19|20)[0-9]{2}"}})
answer = completion.choices[0].message.content
""",
        "1945",
    ),
)

NEXT = r"""
Three requests to try next, in another terminal:

1. A regular expression:
   curl -s {url}/v1/chat/completions -H 'content-type: application/json' -d '{{"model": "{model}",
     "messages": [{{"role": "user", "content": "A phone number?"}}],
     "structured_outputs": {{"regex": "\\+[1-9][0-9]{{1,2}}( [0-9]{{2,4}}){{3}}"}}}}'

2. A choice:
   curl -s {url}/v1/completions -H 'content-type: application/json' -d '{{"model": "{model}",
     "prompt": "The capital of France is", "structured_outputs": {{"choice": ["Berlin", "Paris", "Rome"]}}}}'

3. What cannot be enforced is refused, never ignored (HTTP 400):
   curl -s {url}/v1/completions -H 'content-type: application/json' -d '{{"model": "{model}", "prompt": "x",
     "structured_outputs": {{"regex": "(a+)\\1"}}}}'

All steps of docs/first-answer.md work, too, with the model {model} at {url}, and `.venv/bin/dotllm` for `dotllm`.
"""


def code(example: Example, url: str, model: str) -> str:
    """The code that runs and that the reader sees."""
    return example.code.replace("URL", url).replace("MODEL", model).replace("QUESTION", example.question)


def ask(example: Example, url: str, model: str, names: dict[str, Any]) -> str:
    """The answer. ``names`` are the variables of earlier examples; this example adds its own."""
    exec(compile(code(example, url, model), "<example>", "exec", dont_inherit=True), names)
    return str(names["answer"])


def ask_freely(example: Example, url: str, model: str, most_tokens: int = 60) -> str:
    """The answer to the same question without a constraint, cut off at ``most_tokens``."""
    from openai import OpenAI

    completion = OpenAI(base_url=f"{url}/v1", api_key="-").chat.completions.create(
        model=model, messages=[{"role": "user", "content": example.question}], max_completion_tokens=most_tokens
    )
    return completion.choices[0].message.content or ""
