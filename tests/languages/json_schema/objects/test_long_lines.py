"""Objects with very many properties are lines of runs, with the same masks, and memory linear in the properties."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dotllm import Index, Vocabulary
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.objects import members
from tests.cases import few

VOCABULARY = Vocabulary.from_bytes(
    [*(bytes([byte]) for byte in range(256)), b'"a', b'":', b", ", None], eos_token_ids=259
)
Schema = dict[str, Any]


def _schema(draw: random.Random) -> Schema:
    names = [f"{draw.choice('abc')}{i}" for i in range(draw.randrange(1, 24))]
    schema: Schema = {
        "type": "object",
        "properties": {name: {"enum": [draw.randrange(3)]} for name in names},
        "required": [name for name in names if draw.random() < draw.choice([0, 0.1, 0.6])],
    }
    if draw.random() < 0.3:
        schema["additionalProperties"] = draw.choice([True, False, {"type": "null"}])
    if draw.random() < 0.2:
        schema["required"].append("z")
    return schema


def _masks(index: Index, text: str) -> list[bytes]:
    guide, masks = index.guide(), []
    for byte in text.encode():
        mask = index.masks[guide.mask_row]
        masks.append(mask.tobytes())
        if not mask[byte >> 5] >> (byte & 31) & 1:
            break
        guide.advance(byte)
    return [*masks, index.masks[guide.mask_row].tobytes()]


@pytest.mark.parametrize("seed", range(few(60)))
def test_runs_allow_what_a_line_allows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    schema = _schema(draw)
    line = Index.from_json_schema(schema, VOCABULARY)
    monkeypatch.setattr(members, "LONGEST_LINE", draw.choice([1, 2, 5]))
    monkeypatch.setattr(members, "LONGEST_RUN", draw.choice([2, 3, 7]))
    runs = Index.from_json_schema(schema, VOCABULARY)
    for _ in range(6):
        kept = [name for name in schema["properties"] if name in schema["required"] or draw.random() < 0.5]
        if draw.random() < 0.3:
            draw.shuffle(kept)
        value = {name: schema["properties"][name]["enum"][0] for name in kept}
        text = json.dumps(value | ({"z": None} if draw.random() < 0.5 else {}))
        assert _masks(runs, text) == _masks(line, text), text


def test_memory_is_linear() -> None:
    def words(count: int) -> int:
        schema = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}
        return len(Index.from_grammar_object(json_schema_to_grammar(schema), VOCABULARY).to_bytes())

    assert words(8000) < 2.2 * words(4000)
