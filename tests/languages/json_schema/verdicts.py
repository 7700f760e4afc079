"""The machine's verdicts on documents, read byte by byte."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from dotllm import Index, Vocabulary
from dotllm.languages.json_schema import json_schema_to_grammar


@lru_cache(maxsize=1)
def byte_vocabulary() -> Vocabulary:
    """256 tokens of one byte, and an end token."""
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)


class Acceptor:
    """The documents of one schema. Objects are open unless ``options`` say otherwise, because verdicts are compared
    with the standard, and closing (`objects.closed`) allows only some of what the standard allows."""

    def __init__(self, schema: Any, **options: Any) -> None:
        self.index = Index.from_grammar_object(
            json_schema_to_grammar(schema, **{"additional_properties": "open", **options}), byte_vocabulary()
        )

    def text(self, text: str | bytes) -> bool:
        """Whether this text is a document of the schema."""
        data = text.encode() if isinstance(text, str) else text
        if self.index.unique_nodes:  # what was written earlier matters, too
            guide = self.index.guide()
            return all(guide.advance(byte) for byte in data) and guide.can_finish
        config = self.index.advance_bytes(self.index.guide().config, data)
        return config >= 0 and self.index.can_finish(config)

    def value(self, value: Any) -> bool:
        """The same for a value, written by `json.dumps`."""
        return self.text(json.dumps(value, ensure_ascii=False))

    def prefix(self, text: str) -> bool:
        """Whether some document begins with this text."""
        guide = self.index.guide()
        return all(guide.advance(byte) for byte in text.encode())


def accepts(schema: Any, value: Any, **options: Any) -> bool:
    """`Acceptor.value`, or False if nothing satisfies the schema."""
    return Acceptor(schema, **options).value(value)
