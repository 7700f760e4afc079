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


def test_a_dynamic_anchor_of_a_resource_that_was_not_entered() -> None:
    """No resource on the way has the anchor, so the one that the reference names counts."""
    other = {"$id": "http://x.test/other", "$dynamicAnchor": "node", "type": "integer"}
    acceptor = Acceptor({"$dynamicRef": "http://x.test/other#node", "$defs": {"other": other}})
    assert acceptor.value(1) and not acceptor.value("a")


@pytest.mark.parametrize("reference", ["#/$defs/color", "http://x.test/other"])
def test_a_recursive_reference_leads_to_a_document(reference: str) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": reference, "$defs": DEFINED}
    with pytest.raises(SpecError, match=r'\$recursiveRef can only be "#"'):
        Acceptor(schema)


@pytest.mark.parametrize("name", ["7", "draft-07", "http://json-schema.org/draft-07/schema#"])
def test_names_of_dialects(name: str) -> None:
    """Before 2019-09, the keywords next to a reference do not count."""
    schema = {"$ref": "#/$defs/color", "enum": ["red"], "$defs": DEFINED}
    assert Acceptor(schema, default_dialect=name).value("blue") and not Acceptor(schema).value("blue")
    with pytest.raises(SpecError, match="unknown JSON Schema dialect '8'; known: 4, 6, 7"):
        Acceptor(schema, default_dialect="8")
