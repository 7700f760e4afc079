"""Outlines: its client of vLLM with every kind of output, a stream."""

# begin
import outlines
from openai import OpenAI
from weather import QUESTION, Weather

client = OpenAI(base_url="http://localhost:8000/v1", api_key="-")
model = outlines.from_vllm(client, "Qwen/Qwen3-8B")
print(Weather.model_validate_json(model(QUESTION, Weather)))
# end

import re
from typing import Literal

from outlines.types import CFG, Regex

assert model(QUESTION, Literal["sun", "rain"]) in ("sun", "rain")
assert re.fullmatch(r"[0-9]{1,2} C", model(QUESTION, Regex(r"[0-9]{1,2} C")))
assert model(QUESTION, CFG('start: "sun" | "rain"')) in ("sun", "rain")
assert Weather.model_validate_json("".join(model.stream(QUESTION, Weather)))
