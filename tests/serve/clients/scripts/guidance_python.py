"""guidance's client of vLLM: JSON, a choice, a regular expression."""

# begin
import guidance
from guidance import assistant, user
from guidance.models.experimental import VLLMModel
from guidance.models.experimental._vllm import VLLMInterpreter
from weather import QUESTION, Weather

VLLMInterpreter.logprobs = False
model = VLLMModel("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", echo=False)
with user():
    model += QUESTION
with assistant():
    model += guidance.json("weather", schema=Weather)
print(Weather.model_validate_json(model["weather"]))
# end

import re

from guidance import gen, select

for name, asked in (("sky", select(["sun", "rain"], name="sky")), ("celsius", gen("celsius", regex="[0-9]{1,2}"))):
    model = VLLMModel("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", api_key="-", echo=False)
    with user():
        model += QUESTION
    with assistant():
        model += asked
    assert re.fullmatch("sun|rain|[0-9]{1,2}", model[name])
