"""The constructors as users call them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Literal

import pytest

import dotllm
from dotllm import Index, InvalidSpecError
from dotllm.diagnosis.why import byte_vocabulary

pydantic = pytest.importorskip("pydantic")


class Weather(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    city: str = pydantic.Field(max_length=5)
    sky: Literal["sun", "rain"]


@dataclasses.dataclass
class Point:
    x: int


def accepts(index: Index, text: str) -> bool:
    guide = index.guide()
    return all(guide.advance(byte) for byte in text.encode()) and guide.can_finish


def test_pydantic_models_are_schemas() -> None:
    index = Index.from_json_schema(Weather, byte_vocabulary())
    assert accepts(index, '{"city": "Osaka", "sky": "rain"}') and not accepts(
        index, '{"city": "Sapporo", "sky": "rain"}'
    )
    index = Index.from_json_schema(pydantic.TypeAdapter(list[Point]), byte_vocabulary(), any_whitespace=False)
    assert accepts(index, '[{"x":1}]') and not accepts(index, '[{"x": 1}]')


def test_options_are_written_out() -> None:
    """Editors and type checkers know the options; the error for a misspelt option names it."""
    for name in ("from_regex", "from_json_schema", "from_json_object", "from_grammar", "from_structural_tag"):
        parameters = inspect.signature(getattr(Index, name)).parameters.values()
        assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters), name
    with pytest.raises(TypeError, match="serach"):
        Index.from_regex("a", byte_vocabulary(), serach=True)  # type: ignore[call-arg]
    with pytest.raises(InvalidSpecError, match="order"):
        Index.from_json_schema({}, byte_vocabulary(), property_order="random")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError, match="whitespace must be"):
        Index.from_json_schema({}, byte_vocabulary(), whitespace="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["gpt2", None, object()])
def test_something_else_in_the_place_of_a_vocabulary_is_told_what_to_write(wrong: object) -> None:
    for make, spec in (
        (Index.from_regex, "a"),
        (Index.from_json_schema, {"type": "object"}),
        (Index.from_choice, ["a"]),
        (Index.from_grammar, 'start: "a"'),
        (Index.from_structural_tag, {"type": "structural_tag", "format": {"type": "any_text"}}),
    ):
        with pytest.raises(TypeError, match=r"Vocabulary\.from_tokenizer"):
            make(spec, wrong)  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"Vocabulary\.from_tokenizer"):
        Index.from_json_object(wrong)  # type: ignore[arg-type]


def test_the_order_of_keys() -> None:
    schema = {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    for make, spec in ((Index.from_json_schema, schema), (Index.from_structural_tag, tag)):
        assert not accepts(make(spec, byte_vocabulary()), '{"b": 2, "a": 1}')
        assert accepts(make(spec, byte_vocabulary(), property_order="any"), '{"b": 2, "a": 1}')


def test_indexes_and_guides_say_what_they_are() -> None:
    index = Index.from_regex("a+", byte_vocabulary())
    guide = index.guide()
    assert repr(index).startswith("<Index of ") and "configurations found" in repr(index)
    assert repr(guide) == "<Guide after 0 tokens, may not end>"
    guide.advance(ord("a"))
    assert repr(guide) == "<Guide after 1 tokens, may end>"
    guide.advance(256)
    assert repr(guide).endswith("finished>")


def test_the_package_shows_its_public_names_only() -> None:
    assert dir(dotllm) == sorted(dotllm.__all__)
