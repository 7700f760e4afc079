"""References to definitions as clients write them."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm import SpecError
from tests.languages.json_schema.verdicts import Acceptor

DEFINED: dict[str, Any] = {"color": {"enum": ["red", "blue"]}}


@pytest.mark.parametrize("holder", ["$defs", "definitions"])
def test_a_pointer_without_the_number_sign_is_one_into_the_document(holder: str) -> None:
    """LiteLLM writes them into schemas for Anthropic's API. Without an identifier they cannot lead elsewhere."""
    schema = {"items": {"$ref": f"/{holder}/color"}, "type": "array", holder: DEFINED}
    acceptor = Acceptor(schema)
    assert acceptor.value(["red", "blue"])
    assert not acceptor.value(["green"])


def test_such_a_pointer_in_a_recursive_schema() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "/$defs/a~1b%20c"}}, "additionalProperties": False}
    acceptor = Acceptor({"$ref": "/$defs/a~1b%20c", "$defs": {"a/b c": node}})
    assert acceptor.value({"next": {"next": {}}})
    assert not acceptor.value({"next": {"next": 1}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "/$defs/colour", "$defs": DEFINED},
        {"$ref": "/components/color", "components": DEFINED},
        {"$ref": "$defs/color", "$defs": DEFINED},
        {"$id": "https://example.org/schemas/one", "$ref": "/$defs/color", "$defs": DEFINED},
        {"$defs": DEFINED, "items": {"$id": "https://example.org/schemas/one", "$ref": "/$defs/color"}},
    ],
    ids=["nothing there", "another place", "a relative path", "an identifier", "an inner identifier"],
)
def test_other_references_without_it_lead_to_other_documents(schema: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="leads to another document"):
        Acceptor(schema)
