"""pydantic-ai: native, tool and prompted output, a tool, a retry, a stream; OpenAI's chat and Responses, Messages."""

# begin
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from weather import QUESTION, Weather

provider = OpenAIProvider(base_url="http://localhost:8000/v1", api_key="-")
model = OpenAIChatModel("Qwen/Qwen3-8B", provider=provider)
agent = Agent(model, output_type=NativeOutput(Weather))
print(agent.run_sync(QUESTION).output)  # a Weather
# end

import asyncio

from anthropic import AsyncAnthropic
from pydantic_ai import ModelRetry, RunContext, Tool, ToolDefinition, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from weather import note_weather

settings = {"max_tokens": 300}


async def offered_once(context: RunContext, tool: ToolDefinition) -> ToolDefinition | None:
    return tool if context.run_step == 1 else None


async def main() -> None:
    provider = OpenAIProvider(base_url="http://localhost:8000/v1", api_key="-")  # bound to this event loop
    messages = AsyncAnthropic(base_url="http://localhost:8000", api_key="-")
    model = OpenAIChatModel("Qwen/Qwen3-8B", provider=provider)
    responses = OpenAIResponsesModel("Qwen/Qwen3-8B", provider=provider)
    anthropic = AnthropicModel("Qwen/Qwen3-8B", provider=AnthropicProvider(anthropic_client=messages))
    for spoken in (model, responses, anthropic):
        for output in (Weather, ToolOutput(Weather, strict=True), NativeOutput(Weather)):
            if spoken is anthropic and isinstance(output, NativeOutput):
                continue  # pydantic-ai knows which of Anthropic's models support it
            found = await Agent(spoken, output_type=output, model_settings=settings).run(QUESTION)
            assert isinstance(found.output, Weather)
    async with Agent(model, output_type=NativeOutput(Weather)).run_stream(QUESTION) as stream:
        assert isinstance(await stream.get_output(), Weather)

    retried = []
    strict = Agent(model, output_type=NativeOutput(Weather), retries=1, model_settings=settings)

    @strict.output_validator
    def once(weather: Weather) -> Weather:
        retried.append(weather)
        if len(retried) == 1:
            raise ModelRetry("again, please")
        return weather

    assert isinstance((await strict.run(QUESTION)).output, Weather) and len(retried) == 2
    # The tool is offered once: a small model would call it until it reaches the limit of requests.
    noting = Tool(note_weather, prepare=offered_once)
    with_tool = Agent(model, output_type=ToolOutput(Weather), tools=[noting], model_settings=settings)
    assert isinstance((await with_tool.run(QUESTION)).output, Weather)


asyncio.run(main())
