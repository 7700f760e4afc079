"""Google's ADK, through LiteLLM: an output schema, a tool."""

# begin
import asyncio

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from weather import QUESTION, Weather

model = LiteLlm("openai/Qwen/Qwen3-8B", api_base="http://localhost:8000/v1", api_key="-", max_tokens=300)
agent = LlmAgent(name="reporter", model=model, output_schema=Weather)
events = asyncio.run(InMemoryRunner(agent).run_debug(QUESTION, quiet=True))
print(Weather.model_validate_json(events[-1].content.parts[-1].text))  # the parts before it are reasoning
# end
