"""How sure the model was of each value: ``OPENAI_BASE_URL=http://localhost:8000/v1 python examples/confidence.py``.

The model sorts a ticket. If it was not sure of the team, or meant to say something that the schema does not allow, a
person should look at the ticket. No second request is sent, and the model is not asked how certain it is.
"""

from __future__ import annotations

import json
import math
from typing import Any

from openai import OpenAI

SCHEMA = {
    "type": "object",
    "properties": {"team": {"enum": ["billing", "delivery", "returns"]}, "urgent": {"type": "boolean"}},
    "required": ["team", "urgent"],
}
SURE = 0.9

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    completion = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Sort this: my parcel has not come, and I want my money back."}],
        response_format={"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA}},
        extra_body={"vllm_xargs": {"dotllm_confidence": True}},
    )
    choice: Any = completion.choices[0]
    print(json.loads(choice.message.content))
    for pointer, field in choice.dotllm["fields"].items():
        if field["members"] is None:
            continue
        print(f"{pointer}: the masks left {math.exp(field['mass']):.0%} of what the model meant to say")
        for member in field["members"]:
            known = member["probability"]
            print(f"    {json.dumps(member['value'])}: {'not known' if known is None else format(known, '.1%')}")
        best = max((member["probability"] or 0.0 for member in field["members"]), default=0.0)
        if best < SURE:
            print("    a person should look at this")
