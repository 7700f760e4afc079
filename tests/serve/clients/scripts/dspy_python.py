"""DSPy: its JSON and chat adapters, and a tool."""

# begin
import dspy
from weather import QUESTION, Weather


class Report(dspy.Signature):
    """Read the weather out of the text."""

    text: str = dspy.InputField()
    weather: Weather = dspy.OutputField()


model = dspy.LM("openai/Qwen/Qwen3-8B", api_base="http://localhost:8000/v1", api_key="-", max_tokens=500)
dspy.configure(lm=model, adapter=dspy.JSONAdapter())
print(dspy.Predict(Report)(text=QUESTION).weather)  # a Weather
# end

assert isinstance(dspy.Predict(Report)(text=QUESTION).weather, Weather)
