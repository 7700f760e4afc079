"""LiteLLM's SDK: formats and tools through its OpenAI and vLLM providers, a stream, Responses, Anthropic's API."""

# begin
import litellm
from weather import QUESTION, Weather

answer = litellm.completion(
    model="openai/Qwen/Qwen3-8B",
    api_base="http://localhost:8000/v1",
    api_key="-",
    response_format=Weather,
    messages=[{"role": "user", "content": QUESTION}],
)
print(Weather.model_validate_json(answer.choices[0].message.content))
# end

from openai import pydantic_function_tool

server = {"api_base": "http://localhost:8000/v1", "api_key": "-", "max_tokens": 300}
question = {**server, "messages": [{"role": "user", "content": QUESTION}]}
tool = pydantic_function_tool(Weather, name="note_weather")
for provider in ("openai", "hosted_vllm"):
    model = f"{provider}/Qwen/Qwen3-8B"
    answer = litellm.completion(model=model, **question, response_format=Weather)
    assert Weather.model_validate_json(answer.choices[0].message.content)
    called = litellm.completion(model=model, **question, tools=[tool], tool_choice="required")
    assert Weather.model_validate_json(called.choices[0].message.tool_calls[0].function.arguments)
    events = [*litellm.completion(model=model, **question, response_format=Weather, stream=True)]
    text = "".join(event.choices[0].delta.content or "" for event in events)
    assert Weather.model_validate_json(text) and len(events) > 2

said = litellm.responses(
    model="openai/Qwen/Qwen3-8B", input=QUESTION, text_format=Weather, api_base=server["api_base"], api_key="-"
)
text = next(item for item in said.output if item.type == "message").content[0].text
assert Weather.model_validate_json(text)
