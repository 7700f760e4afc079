"""Instructor: its modes, a partial stream, a retry."""

# begin
import instructor
from openai import OpenAI
from weather import QUESTION, Weather

openai = OpenAI(base_url="http://localhost:8000/v1", api_key="-")
client = instructor.from_openai(openai, mode=instructor.Mode.JSON_SCHEMA)
weather = client.chat.completions.create(
    model="Qwen/Qwen3-8B",
    response_model=Weather,
    max_retries=0,  # none is needed
    messages=[{"role": "user", "content": QUESTION}],
)
print(weather)  # a Weather
# end

from typing import Annotated

from anthropic import Anthropic
from pydantic import AfterValidator

assert isinstance(weather, Weather)
question = {"model": "Qwen/Qwen3-8B", "max_tokens": 300, "messages": [{"role": "user", "content": QUESTION}]}
Mode = instructor.Mode
for mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA):
    other = instructor.from_openai(openai, mode=mode)
    found = other.chat.completions.create(**question, response_model=Weather, max_retries=0)
    assert isinstance(found, Weather), mode
    parts = [*other.chat.completions.create_partial(**question, response_model=Weather)]
    # (The number of parts depends on timing: on a busy server all arguments may come in one event.)
    assert Weather.model_validate(parts[-1].model_dump()), mode
messages = instructor.from_anthropic(Anthropic(base_url="http://localhost:8000", api_key="-"))
assert isinstance(messages.create(**question, response_model=Weather, max_retries=0), Weather)

asked = []


def second_time(city: str) -> str:
    asked.append(city)
    if len(asked) == 1:
        raise ValueError("say it again")
    return city


class Checked(Weather):
    city: Annotated[str, AfterValidator(second_time)]


assert isinstance(client.create(**question, response_model=Checked, max_retries=1), Checked) and len(asked) == 2
