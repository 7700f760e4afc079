"""magentic: a Pydantic model, a function call, and a stream of objects."""

# begin
from magentic import OpenaiChatModel, prompt
from weather import QUESTION, Weather

model = OpenaiChatModel("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", max_tokens=300)


@prompt(QUESTION, model=model)
def report() -> Weather: ...


print(report())  # a Weather
# end

from magentic import FunctionCall
from weather import note_weather

assert isinstance(report(), Weather)


@prompt(QUESTION, functions=[note_weather], model=model)
def note() -> FunctionCall[str]: ...


assert note()().startswith("noted: ")
