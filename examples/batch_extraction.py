"""One schema for many documents: ``OPENAI_BASE_URL=http://localhost:8000/v1 python … < lines.txt > rows.jsonl``.

The schema is compiled once. The server batches concurrent requests, so keep a few hundred in flight.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict, Field

IN_FLIGHT = 256
SOME = ["Blue bicycle, 90 euros, like new", "Kettle, broken, free", "Atlas of 1911, 45 euros"]


class Offer(BaseModel):
    """A row."""

    model_config = ConfigDict(extra="forbid")
    thing: str = Field(max_length=30)
    euros: int | None = Field(ge=0, le=100000)  # None if the text does not say
    state: Literal["new", "used", "broken", "unknown"]


async def main() -> None:
    """Print the rows in the order of the documents."""
    client = AsyncOpenAI(api_key="-", max_retries=5)  # retries a 503 (the compile queue is full)
    model = (await client.models.list()).data[0].id
    free = asyncio.Semaphore(IN_FLIGHT)

    async def extract(document: str) -> Offer | None:
        async with free:
            completion = await client.chat.completions.parse(
                model=model,
                messages=[{"role": "user", "content": f"Read this offer. Reply in JSON.\n\n{document}"}],
                response_format=Offer,
                max_completion_tokens=400,
            )
        return completion.choices[0].message.parsed

    documents = SOME if sys.stdin.isatty() or "pytest" in sys.modules else sys.stdin.read().splitlines()
    for row in await asyncio.gather(*map(extract, documents)):
        print(row.model_dump_json() if row else "null")


if __name__ == "__main__":
    asyncio.run(main())
