"""LangChain: structured output with each method, bound tools, streams; langchain-openai and langchain-anthropic."""

# begin
from langchain_openai import ChatOpenAI
from weather import QUESTION, Weather

chat = ChatOpenAI(model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-")
print(chat.with_structured_output(Weather).invoke(QUESTION))  # a Weather
# end

from langchain_anthropic import ChatAnthropic
from weather import note_weather

for method in ("json_schema", "function_calling"):
    assert isinstance(chat.with_structured_output(Weather, method=method).invoke(QUESTION), Weather)
assert isinstance([*chat.with_structured_output(Weather).stream(QUESTION)][-1], Weather)
forced = chat.bind_tools([note_weather], tool_choice="required", strict=True)
(call,) = forced.invoke(QUESTION).tool_calls
assert call["name"] == "note_weather" and isinstance(call["args"]["celsius"], int)
parts = [*forced.stream(QUESTION)]
whole = parts[0]
for part in parts[1:]:
    whole += part
assert whole.tool_calls[0]["args"] == call["args"] and len(parts) > 2
responses = ChatOpenAI(model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", use_responses_api=True)
assert isinstance(responses.with_structured_output(Weather).invoke(QUESTION), Weather)

messages = ChatAnthropic(model="Qwen/Qwen3-8B", base_url="http://localhost:8000", api_key="-", max_tokens=300)
for method in ("json_schema", "function_calling"):
    assert isinstance(messages.with_structured_output(Weather, method=method).invoke(QUESTION), Weather)
