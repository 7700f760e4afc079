"""A Pydantic model as the schema: ``python examples/pydantic_model.py``."""

from __future__ import annotations

from datetime import date
from typing import Literal

from loop import vocabulary, write
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dotllm import Index


class Weather(BaseModel):
    """Closed by ``extra="forbid"``: a model is open by default, and so is its schema."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=12)
    day: date
    celsius: int = Field(ge=-60, le=60)
    sky: Literal["sun", "cloud", "rain", "snow"]


if __name__ == "__main__":
    text = write(Index.from_json_schema(Weather, vocabulary(), any_whitespace=False))
    print(repr(Weather.model_validate_json(text)))

    numbers = TypeAdapter(tuple[bool, Literal[1, 2, 3]])
    text = write(Index.from_json_schema(numbers, vocabulary(), any_whitespace=False))
    print(numbers.validate_json(text))
