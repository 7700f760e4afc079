"""Agno: its vLLM model with an output schema, a forced tool, a stream."""

# begin
from agno.agent import Agent
from agno.models.vllm import VLLM
from weather import QUESTION, Weather

model = VLLM(id="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", max_tokens=300)
agent = Agent(model=model, output_schema=Weather, telemetry=False)
print(agent.run(QUESTION).content)  # a Weather
# end

from agno.tools import tool
from weather import note_weather

assert isinstance(agent.run(QUESTION).content, Weather)
note = tool(stop_after_tool_call=True)(note_weather)  # otherwise Agno demands a call in every turn
noting = Agent(model=model, tools=[note], tool_choice="required", telemetry=False)
assert noting.run(QUESTION).tools[0].tool_name == "note_weather"
events = Agent(model=model, telemetry=False).run(QUESTION, stream=True)
assert "".join(event.content or "" for event in events)  # (an event of a thought has no content)
