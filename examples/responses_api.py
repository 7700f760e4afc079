"""The Responses API, streamed: ``OPENAI_BASE_URL=http://localhost:8000/v1 python examples/responses_api.py``."""

from __future__ import annotations

from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Ticket(BaseModel):
    """What the customer's text says."""

    model_config = ConfigDict(extra="forbid")
    product: str = Field(max_length=20)
    mood: Literal["calm", "angry"]
    is_urgent: bool


if __name__ == "__main__":
    client = OpenAI(api_key="-")
    with client.responses.stream(
        model=client.models.list().data[0].id,
        input="My toaster burns! Send help. Reply in JSON.",
        text_format=Ticket,  # this API has no response_format and refuses it
        max_output_tokens=400,
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
        response = stream.get_final_response()
    print()
    print(response.status, repr(response.output_parsed))
