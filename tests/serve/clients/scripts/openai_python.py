"""openai-python: formats and tools in chat and Responses, streams, and refusals."""

# begin
from openai import OpenAI
from weather import QUESTION, Weather

client = OpenAI(base_url="http://localhost:8000/v1", api_key="-")
answer = client.chat.completions.parse(
    model="Qwen/Qwen3-8B",
    response_format=Weather,
    messages=[{"role": "user", "content": QUESTION}],
)
print(answer.choices[0].message.parsed)  # a Weather
# end

from openai import BadRequestError, pydantic_function_tool

assert isinstance(answer.choices[0].message.parsed, Weather)
tool = pydantic_function_tool(Weather, name="note_weather")
question = {"model": "Qwen/Qwen3-8B", "messages": [{"role": "user", "content": QUESTION}]}
called = client.chat.completions.parse(**question, tools=[tool], tool_choice="required")
assert isinstance(called.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)

with client.chat.completions.stream(**question, response_format=Weather) as stream:
    assert "content.delta" in [event.type for event in stream]
    assert isinstance(stream.get_final_completion().choices[0].message.parsed, Weather)
with client.chat.completions.stream(**question, tools=[tool], tool_choice="required") as stream:
    # The library says "arguments.done" only if the end comes in a later event than the call. On a busy server both may
    # come in the same.
    assert "tool_calls.function.arguments.delta" in [event.type for event in stream]
    called = stream.get_final_completion()
assert isinstance(called.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)

said = client.responses.parse(model="Qwen/Qwen3-8B", input=QUESTION, text_format=Weather)
assert isinstance(said.output_parsed, Weather)
with client.responses.stream(model="Qwen/Qwen3-8B", input=QUESTION, text_format=Weather) as stream:
    assert "response.output_text.delta" in [event.type for event in stream]
    assert isinstance(stream.get_final_response().output_parsed, Weather)
function = {"type": "function", "name": "note_weather", "parameters": tool["function"]["parameters"], "strict": True}
said = client.responses.create(model="Qwen/Qwen3-8B", input=QUESTION, tools=[function], tool_choice="required")
assert Weather.model_validate_json(next(item for item in said.output if item.type == "function_call").arguments)

try:
    impossible = {"name": "none", "schema": {"type": "integer", "minimum": 2, "maximum": 1}}
    client.chat.completions.create(**question, response_format={"type": "json_schema", "json_schema": impossible})
except BadRequestError as error:
    assert error.code == "dotllm.unsatisfiable" and error.param
else:
    raise AssertionError("it was not refused")
