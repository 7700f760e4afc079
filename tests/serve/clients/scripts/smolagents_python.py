"""smolagents: a format, and an agent's tool call."""

# begin
from smolagents import OpenAIModel
from weather import QUESTION, Weather

model = OpenAIModel("Qwen/Qwen3-8B", api_base="http://localhost:8000/v1", api_key="-", max_tokens=300)
schema = {"name": "weather", "schema": Weather.model_json_schema()}
answer = model(
    [{"role": "user", "content": QUESTION}],
    response_format={"type": "json_schema", "json_schema": schema},
)
print(Weather.model_validate_json(answer.content))
# end

from smolagents import tool


@tool
def note_weather(city: str, celsius: int) -> str:
    """Note the weather of a city.

    Args:
        city: its name
        celsius: how warm it is
    """
    return "noted"


question = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
called = model(question, tools_to_call_from=[note_weather])
arguments = model.parse_tool_calls(called).tool_calls[0].function.arguments
assert isinstance(arguments["city"], str) and isinstance(arguments["celsius"], int)
parts = [*model.generate_stream(question, tools_to_call_from=[note_weather])]
assert len(parts) > 1
