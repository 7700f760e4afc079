"""AutoGen: a Pydantic model, a strict tool, a stream."""

# begin
import asyncio

from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from weather import QUESTION, Weather

able = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True}
client = OpenAIChatCompletionClient(
    model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", model_info=able
)
question = [UserMessage(content=QUESTION, source="user")]


async def main() -> Weather:
    answer = await client.create(question, json_output=Weather)
    return Weather.model_validate_json(answer.content)


print(asyncio.run(main()))
# end

import json

from autogen_core.tools import FunctionTool
from weather import note_weather


async def more() -> None:
    client = OpenAIChatCompletionClient(
        model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", model_info=able
    )  # bound to this event loop
    tool = FunctionTool(note_weather, description="Note the weather of a city.", strict=True)
    called = await client.create(question, tools=[tool], tool_choice="required", extra_create_args={"max_tokens": 200})
    assert json.loads(called.content[0].arguments).keys() == {"city", "celsius"}
    *parts, last = [part async for part in client.create_stream(question, json_output=Weather)]
    assert len(parts) > 1 and Weather.model_validate_json(last.content)


asyncio.run(more())
