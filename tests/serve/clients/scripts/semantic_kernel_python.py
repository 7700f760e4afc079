"""Semantic Kernel: a Pydantic model, a forced function, a stream."""

# begin
import asyncio

from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from weather import QUESTION, Weather

history = ChatHistory()
history.add_user_message(QUESTION)


async def main() -> Weather:
    client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="-")
    service = OpenAIChatCompletion(ai_model_id="Qwen/Qwen3-8B", async_client=client)
    settings = OpenAIChatPromptExecutionSettings(response_format=Weather)
    answer = await service.get_chat_message_content(history, settings)
    return Weather.model_validate_json(str(answer))


print(asyncio.run(main()))
# end

from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.functions import kernel_function
from weather import note_weather


async def more() -> None:
    client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="-")
    service = OpenAIChatCompletion(ai_model_id="Qwen/Qwen3-8B", async_client=client)
    kernel = Kernel()
    kernel.add_function("weather", kernel_function(note_weather))
    choice = FunctionChoiceBehavior.Required(auto_invoke=False)
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=choice, max_tokens=200)
    answer = await service.get_chat_message_content(history, settings, kernel=kernel)
    assert answer.items[0].parse_arguments().keys() == {"city", "celsius"}
    settings = OpenAIChatPromptExecutionSettings(response_format=Weather)
    parts = [str(part) async for part in service.get_streaming_chat_message_content(history, settings)]
    assert len(parts) > 1 and Weather.model_validate_json("".join(parts))


asyncio.run(more())
