"""OpenAI's agents library: output types and tools through chat and Responses, a stream."""

# begin
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from weather import QUESTION, Weather, note_weather

set_tracing_disabled(True)  # traces go to OpenAI
client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="-")
model = OpenAIChatCompletionsModel("Qwen/Qwen3-8B", client)
agent = Agent("reporter", model=model, output_type=Weather)
print(Runner.run_sync(agent, QUESTION).final_output)  # a Weather
# end

import asyncio

from agents import OpenAIResponsesModel

tool = function_tool(note_weather)
forced = ModelSettings(tool_choice="required", max_tokens=200)


async def main() -> None:
    client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="-")  # bound to this event loop
    for spoken in (OpenAIChatCompletionsModel("Qwen/Qwen3-8B", client), OpenAIResponsesModel("Qwen/Qwen3-8B", client)):
        answer = await Runner.run(Agent("reporter", model=spoken, output_type=Weather), QUESTION)
        assert isinstance(answer.final_output, Weather)
        noting = Agent(
            "noting", model=spoken, tools=[tool], model_settings=forced, tool_use_behavior="stop_on_first_tool"
        )
        assert (await Runner.run(noting, QUESTION)).final_output.startswith("noted: ")
        # The tool's result goes back to the model, and the second turn is an answer of the output type.
        both = Agent("both", model=spoken, tools=[tool], model_settings=forced, output_type=Weather)
        assert isinstance((await Runner.run(both, QUESTION, max_turns=4)).final_output, Weather)
        stream = Runner.run_streamed(Agent("reporter", model=spoken, output_type=Weather), QUESTION)
        assert "raw_response_event" in [event.type async for event in stream.stream_events()]
        assert isinstance(stream.final_output, Weather)


asyncio.run(main())
