"""What the examples for all Python clients ask for."""

# begin
from typing import Literal

from pydantic import BaseModel


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    celsius: int
    sky: Literal["sun", "cloud", "rain", "snow"]


QUESTION = "Osaka is rainy today, 19 degrees. Reply in JSON."
# end


def note_weather(city: str, celsius: int) -> str:
    """Note the weather of a city."""
    return f"noted: {city}, {celsius}"
