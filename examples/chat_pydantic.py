"""A Pydantic model through the OpenAI client: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``."""

from __future__ import annotations

from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Weather(BaseModel):
    """The weather in a city."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=40)
    celsius: int = Field(ge=-60, le=60)
    sky: Literal["sun", "cloud", "rain", "snow"]


if __name__ == "__main__":
    client = OpenAI(api_key="-")
    completion = client.chat.completions.parse(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Osaka is rainy today, 19 degrees. Reply in JSON."}],
        response_format=Weather,
    )
    choice = completion.choices[0]
    print(choice.finish_reason, repr(choice.message.parsed))
