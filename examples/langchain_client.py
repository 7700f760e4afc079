"""LangChain's client: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …`` (pip install langchain-openai).

``with_structured_output`` sends a format, which is enforced. Tools that are bound with ``strict=True`` are, too.
"""

from __future__ import annotations

import os
from typing import Literal

from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Weather(BaseModel):
    """The weather in a city."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=40)
    celsius: int = Field(ge=-60, le=60)
    sky: Literal["sun", "cloud", "rain", "snow"]


if __name__ == "__main__":
    model = OpenAI(api_key="-").models.list().data[0].id
    chat = ChatOpenAI(model=model, api_key="-", base_url=os.environ["OPENAI_BASE_URL"])
    question = "Osaka is rainy today, 19 degrees."
    print("format:", repr(chat.with_structured_output(Weather).invoke(question)))

    bound = chat.bind_tools([Weather], tool_choice="required", strict=True)
    for call in bound.invoke(question).tool_calls:
        print("tool:", call["name"], repr(Weather.model_validate(call["args"])))
