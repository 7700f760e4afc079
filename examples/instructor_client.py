"""Instructor's client: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …`` (pip install instructor).

``Mode.JSON_SCHEMA`` sends a format, which is enforced. ``Mode.TOOLS``, Instructor's default, sends tools that are not
strict: their arguments may be any object, and Instructor may have to ask again.
"""

from __future__ import annotations

from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Weather(BaseModel):
    """The weather in a city."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=40)
    celsius: int = Field(ge=-60, le=60)
    sky: Literal["sun", "cloud", "rain", "snow"]


if __name__ == "__main__":
    openai = OpenAI(api_key="-")
    client = instructor.from_openai(openai, mode=instructor.Mode.JSON_SCHEMA)
    weather = client.chat.completions.create(
        model=openai.models.list().data[0].id,
        messages=[{"role": "user", "content": "Osaka is rainy today, 19 degrees."}],
        response_model=Weather,
        max_retries=0,  # no retry is needed
    )
    print(repr(weather))
