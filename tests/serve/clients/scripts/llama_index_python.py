"""LlamaIndex: OpenAILike with formats and with tools, a stream."""

# begin
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from weather import QUESTION, Weather

model = OpenAILike(
    model="Qwen/Qwen3-8B",
    api_base="http://localhost:8000/v1",
    api_key="-",
    is_chat_model=True,
    is_function_calling_model=True,
    should_use_structured_outputs=True,  # a format, not a tool call
)
print(model.as_structured_llm(Weather).chat([ChatMessage(QUESTION)]).raw)  # a Weather
# end

from llama_index.core.tools import FunctionTool
from weather import note_weather

assert isinstance(model.as_structured_llm(Weather).chat([ChatMessage(QUESTION)]).raw, Weather)
common = {"model": "Qwen/Qwen3-8B", "api_base": "http://localhost:8000/v1", "api_key": "-", "max_tokens": 300}
calling = OpenAILike(**common, is_chat_model=True, is_function_calling_model=True, strict=True)
assert isinstance(calling.as_structured_llm(Weather).chat([ChatMessage(QUESTION)]).raw, Weather)
tool = FunctionTool.from_defaults(note_weather)
answer = calling.chat_with_tools([tool], QUESTION, tool_required=True)
(call,) = calling.get_tool_calls_from_response(answer)
assert call.tool_name == "note_weather" and isinstance(call.tool_kwargs["celsius"], int)
*_, last = calling.stream_chat_with_tools([tool], QUESTION, tool_required=True)
assert calling.get_tool_calls_from_response(last)[0].tool_kwargs == call.tool_kwargs
