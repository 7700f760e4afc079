"""DSPy: its JSON adapter, which sends a format if it knows that the model accepts one."""

# begin
import dspy
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider
from weather import QUESTION, Weather


class Report(dspy.Signature):
    """Read the weather out of the text."""

    text: str = dspy.InputField()
    weather: Weather = dspy.OutputField()


access = AccessPolicy("dotllm", base_url="http://localhost:8000/v1")
server = ProviderDefinition.chat(access, compat=OpenAIChatCompat())
register_provider(server, supports=ModelSupport(response_schema=True))
model = dspy.LM("dotllm/Qwen/Qwen3-8B", api_key="-", max_tokens=500)
dspy.configure(lm=model, adapter=dspy.JSONAdapter())
print(dspy.Predict(Report)(text=QUESTION).weather)  # a Weather
# end

assert isinstance(dspy.Predict(Report)(text=QUESTION).weather, Weather)
