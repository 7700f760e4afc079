"""Free text with a formatted part, as tool parsers request it: ``python examples/structural_tag.py``."""

from __future__ import annotations

import json

from loop import vocabulary, write

from dotllm import Index

SUM = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": [1, 2]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "regex", "pattern": "[a-z ]{0,20}"},
            {
                "type": "tag",
                "begin": "<call=add>",
                "content": {"type": "json_schema", "json_schema": SUM},
                "end": "</call>",
            },
        ],
    },
}

if __name__ == "__main__":
    text = write(Index.from_structural_tag(TAG, vocabulary(), any_whitespace=False))
    print(text)
    print(json.loads(text.split("<call=add>")[1].removesuffix("</call>")))
