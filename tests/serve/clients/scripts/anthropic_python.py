"""Anthropic's SDK for Python: parse, forced tools, streams, the tool runner."""

# begin
from anthropic import Anthropic
from weather import QUESTION, Weather

client = Anthropic(base_url="http://localhost:8000", api_key="-")
answer = client.messages.parse(
    model="Qwen/Qwen3-8B",
    max_tokens=500,
    output_format=Weather,
    messages=[{"role": "user", "content": QUESTION}],
)
print(answer.parsed_output)  # a Weather
# end

from anthropic import BadRequestError, beta_tool

assert isinstance(answer.parsed_output, Weather)
question = {"model": "Qwen/Qwen3-8B", "max_tokens": 200, "messages": [{"role": "user", "content": QUESTION}]}
tool = {"name": "note_weather", "input_schema": Weather.model_json_schema()}
called = client.messages.create(**question, tools=[tool], tool_choice={"type": "any"})
assert Weather.model_validate(called.content[-1].input)
with client.messages.stream(**question, tools=[tool], tool_choice={"type": "tool", "name": "note_weather"}) as stream:
    assert "input_json" in [event.type for event in stream]
    assert Weather.model_validate(stream.get_final_message().content[-1].input)
with client.messages.stream(**question, output_format=Weather) as stream:
    assert isinstance(stream.get_final_message().parsed_output, Weather)

noted = []


@beta_tool
def note_weather(city: str, celsius: int) -> str:
    """Note the weather of a city."""
    noted.append((city, celsius))
    return "noted"


runner = client.beta.messages.tool_runner(
    **question, tools=[note_weather], tool_choice={"type": "any"}, max_iterations=2
)
for message in runner:
    assert message.stop_reason in ("tool_use", "end_turn", "max_tokens")
assert noted and all(isinstance(city, str) and isinstance(celsius, int) for city, celsius in noted)

try:
    client.messages.create(**question, tool_choice={"type": "any"})
except BadRequestError as error:
    assert error.body["error"]["type"] == "invalid_request_error"
else:
    raise AssertionError("it was not refused")
