"""Haystack: a format, a forced tool, a stream."""

# begin
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from weather import QUESTION, Weather

server = {"model": "Qwen/Qwen3-8B", "api_base_url": "http://localhost:8000/v1", "api_key": Secret.from_token("-")}
generator = OpenAIChatGenerator(**server, generation_kwargs={"response_format": Weather})
answer = generator.run([ChatMessage.from_user(QUESTION)])
print(Weather.model_validate_json(answer["replies"][0].text))
# end

from haystack.tools import create_tool_from_function
from weather import note_weather

tool = create_tool_from_function(note_weather)
forced = OpenAIChatGenerator(**server, tools=[tool], generation_kwargs={"tool_choice": "required", "max_tokens": 200})
(call,) = forced.run([ChatMessage.from_user(QUESTION)])["replies"][0].tool_calls
assert call.tool_name == "note_weather" and isinstance(call.arguments["celsius"], int)
parts = []
forced.run([ChatMessage.from_user(QUESTION)], streaming_callback=parts.append)
assert len(parts) > 1
