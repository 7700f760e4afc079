"""The confidence of values, compared with all ways of writing them: random models of small vocabularies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.compilation import Specification
from dotllm.index import Guide
from dotllm.inspector import confidence as confidence_module
from dotllm.inspector.confidence import Place, Value, confidence, values, values_after
from dotllm.inspector.inspector import Inspector

PIECES = [
    *(bytes([byte]) for byte in b'{}[]",: abdegilnortuefsc0123-.'),
    *(b'":', b'": ', b'": "', b'", "', b'"r', b'"re', b"re", b"red", b'red"', b"gre", b"en", b"tr", b"true", b"als"),
    *(b"le", b"lef", b"left", b"left_", b"12", b"2,", b"1,", b"1}", b"}", b", ", b'ed", ', b"false,", b'"l', b"nu", b"ll"),
]  # fmt: skip
VOCABULARY = Vocabulary.from_bytes([*dict.fromkeys(PIECES), None], eos_token_ids=len(dict.fromkeys(PIECES)))
EOS = VOCABULARY.eos_token_ids[0]


class Model:
    """Log probabilities that depend on all earlier tokens and on nothing else."""

    def __init__(self, seed: int, spread: float) -> None:
        self._seed, self._spread = seed, spread

    def under(self, guide: Guide, tokens: Sequence[int]) -> tuple[float, dict[int, float]]:
        """(The mass, the allowed tokens with their log probabilities under the mask)."""
        generator = np.random.default_rng([self._seed, *tokens])
        logits = generator.normal(0, self._spread, VOCABULARY.size)
        allowed = list(guide.allowed_tokens())
        everything, left = np.logaddexp.reduce(logits), np.logaddexp.reduce(logits[allowed])
        return float(left - everything), {token: float(logits[token] - left) for token in allowed}


def written(index: Index, model: Model, random: Random) -> tuple[list[int], list[Place]]:
    """An answer drawn under the masks."""
    guide, tokens, places = index.guide(), list[int](), list[Place]()
    while not guide.is_finished:
        mass, allowed = model.under(guide, tokens)
        token = random.choices(list(allowed), [math.exp(one) for one in allowed.values()])[0]
        tokens.append(token)
        places.append(Place(mass, allowed))
        assert guide.advance(token)
    return tokens, places


def ways(
    guide: Guide, model: Model, tokens: list[int], text: bytes, before: bytes, end: Any
) -> Iterator[tuple[bytes, float]]:
    """Every way to write a value.

    before: the text before the value. end: maps a text to the length of the value in it (0 while unknown).

    Yields:
        The value's text, and the probability of this way.
    """
    for token, logarithm in model.under(guide, tokens)[1].items():
        longer = text + (VOCABULARY.token_bytes(token) or b"")
        if not (longer.startswith(before) or before.startswith(longer)):
            continue
        length = end(longer[len(before) :], token == EOS)
        if length:
            yield longer[len(before) :][:length], math.exp(logarithm)
            continue
        ahead = guide.fork()
        assert ahead.advance(token)
        for value, rest in ways(ahead, model, [*tokens, token], longer, before, end):
            yield value, math.exp(logarithm) * rest


def length_of_json(text: bytes, ended: bool) -> int:
    if text[:1] == b'"':
        return text.find(b'"', 1) + 1
    for at in range(1, len(text)):
        if text[at : at + 1] in b",} ":
            return at
    return len(text) if ended or text in (b"true", b"false", b"null") else 0


SCHEMA = {
    "type": "object",
    "properties": {
        "c": {"enum": ["red", "green", "blue"]},
        "s": {"enum": ["left_a", "left_b", "left", "right", None]},
        "b": {"type": "boolean"},
        "n": {"enum": [1, 12, 2, -3]},
    },
    "required": ["c", "s", "b", "n"],
}


def truth_of(index: Index, model: Model, tokens: list[int], value: Value) -> dict[Any, float]:
    ends = np.cumsum([len(VOCABULARY.token_bytes(token) or b"") for token in tokens])
    first = int(np.searchsorted(ends, value.start, side="right"))
    start = int(ends[first - 1]) if first else 0
    data = b"".join(VOCABULARY.token_bytes(token) or b"" for token in tokens)
    guide, found = index.guide(), dict[Any, float]()
    for token in tokens[:first]:
        guide.advance(token)
    for text, probability in ways(guide, model, tokens[:first], b"", data[start : value.start], length_of_json):
        found[text] = found.get(text, 0) + probability
    members = dict[Any, float]()
    for text, probability in found.items():
        name = json.dumps(json.loads(text)).removesuffix(".0")
        members[name] = members.get(name, 0) + probability / sum(found.values())
    return members


@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_members_against_every_way_of_writing_them(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.from_json_schema(json.dumps(SCHEMA), VOCABULARY, any_whitespace=False)
    bounds = list[Mapping[str, confidence_module.Known]]()
    made = confidence_module._members

    def noted(known: Any) -> Any:
        bounds.append(known)
        return made(known)

    monkeypatch.setattr(confidence_module, "_members", noted)
    random, told, untold = Random(int(spread)), 0, 0
    for seed in range(6):
        model = Model(seed, spread)
        tokens, places = written(index, model, random)
        data = b"".join(VOCABULARY.token_bytes(token) or b"" for token in tokens)
        found = {value.pointer: value for value in values(data, ended=True)}
        bounds.clear()
        fields = confidence(index, tokens, places)
        assert fields.keys() == {"", "/c", "/s", "/b", "/n"} and fields[""].members is None
        for number, pointer in enumerate(("/c", "/s", "/b", "/n")):
            truth = truth_of(index, model, tokens, found[pointer])
            assert bounds[number].keys() == truth.keys()
            for name, known in bounds[number].items():
                assert known.least - 1e-9 <= truth[name] <= known.least + known.more + 1e-9
            for member in fields[pointer].members or ():
                probability = member["probability"]
                told, untold = told + (probability is not None), untold + (probability is None)
                true = truth[json.dumps(member["value"])]
                assert probability is None or abs(probability - true) <= confidence_module.TOLERANCE + 1e-6
    assert told > 25 and untold > 0


def test_a_member_whose_first_token_tells_it() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"ab", b"x", None], eos_token_ids=4)
    index = Index.from_choice(["ab", "b", "x"], vocabulary)
    places = [Place(-0.5, {0: math.log(0.25), 2: math.log(0.25), 1: math.log(0.4), 3: math.log(0.1)})]
    ended = Place(0.0, {4: 0.0})
    (field,) = confidence(index, [2, 4], [*places, ended], choices=["ab", "b", "x"]).values()
    assert field.members == [
        {"value": "ab", "probability": 0.5}, {"value": "b", "probability": 0.4}, {"value": "x", "probability": 0.1}
    ]  # fmt: skip
    assert field.probability == 0.25 and field.mass == -0.5, "as it was spelt"


def test_what_is_not_known_is_not_said() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"c", None], eos_token_ids=3)
    index = Index.from_choice(["ab", "ac", "b"], vocabulary)
    ended, half = Place(0.0, {3: 0.0}), math.log(0.5)
    (field,) = confidence(index, [1, 3], [Place(0.0, {0: half, 1: half}), ended], choices=["ab", "ac", "b"]).values()
    assert [one["probability"] for one in field.members or ()] == [None, None, 0.5], "a was not followed"
    places = [Place(0.0, {0: half, 1: half}), Place(0.0, {1: math.log(0.2), 2: math.log(0.8)}), ended]
    (field,) = confidence(index, [0, 2, 3], places, choices=["ab", "ac", "b"]).values()
    assert [one["probability"] for one in field.members or ()] == [0.1, 0.4, 0.5]
    (field,) = confidence(index, [1, 3], [Place(0.0, {1: half}), ended], choices=["ab", "ac", "b"]).values()
    assert [one["probability"] for one in field.members or ()] == [None] * 3, "half of it is beyond the likeliest"
    (field,) = confidence(index, [1, 3], [Place(None, {}), Place(None, {})], choices=["ab", "ac", "b"]).values()
    assert field == (None, None, [{"value": one, "probability": None} for one in ("ab", "ac", "b")])


def test_values_and_their_tokens() -> None:
    text = b'{"a": [1, -2.5e3, "x\\"]", true], "b/c": {"": null}, "d": {}, "e": []}'
    found = {value.pointer: text[value.start : value.end] for value in values(text, ended=True)}
    assert found == {
        "": text, "/a": b'[1, -2.5e3, "x\\"]", true]', "/a/0": b"1", "/a/1": b"-2.5e3", "/a/2": b'"x\\"]"', "/a/3": b"true",
        "/b~1c": b'{"": null}', "/b~1c/": b"null", "/d": b"{}", "/e": b"[]",
    }  # fmt: skip
    for cut in range(len(text)):
        assert {value.pointer for value in values(text[:cut], ended=False)} <= found.keys()
    assert not list(values(b"12", ended=False)) and len(list(values(b"12", ended=True))) == 1
    assert [value.pointer for value in values(b'{"a": 1', ended=False)] == []


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "number"}, {"type": "object"}, {"maxLength": 3}, {}])
def test_what_is_not_an_enumeration_has_no_members(schema: Any) -> None:
    vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    index = Index.from_json_schema(json.dumps({"properties": {"a": schema}, "required": ["a"]}), vocabulary)
    text = {"string": '"x"', "number": "7", "object": "{}"}.get(schema.get("type"), '"x"')
    tokens = [*f'{{"a": {text}}}'.encode(), 256]
    fields = confidence(index, tokens, [Place(-0.25, {token: -0.5}) for token in tokens])
    assert fields["/a"].members is None
    own = len(text) + (text == "7")  # the token after a number decides that it has ended
    assert fields["/a"].probability == round(math.exp(-0.5 * own), 6) and fields["/a"].mass == -0.25 * own


def test_json_within_other_text() -> None:
    text = b'Well, "x": 1. <a>{"c": "</b>", "d": true}</b> and <c>[1, 2]</c> <a>{"c": "'
    found = [(value.pointer, text[value.start : value.end]) for value in values_after(["<a>", "<c>", "<c"], text)]
    assert found == [
        ("/0/c", b'"</b>"'), ("/0/d", b"true"), ("/0", b'{"c": "</b>", "d": true}'), ("/1/0", b"1"), ("/1/1", b"2"),
        ("/1", b"[1, 2]"),
    ]  # fmt: skip
    assert not list(values_after([], text)) and not list(values_after(["<x>", ""], text))


def test_a_call_in_a_structural_tag(vocabulary: Vocabulary) -> None:
    schema = {"properties": {"unit": {"enum": ["C", "F"]}}, "required": ["unit"]}
    tag = {"begin": "<call>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</call>"}
    for form in (
        {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<call>"], "tags": [tag]}},
        {"structures": [{"begin": "<call>", "schema": schema, "end": "</call>"}], "triggers": ["<call>"]},
    ):
        specification = Specification.create("structural_tag", json.dumps(form))
        tokens = [*b'so <call>{"unit": "F"}</call>', vocabulary.eos_token_ids[0]]
        choice = {ord("F"): math.log(0.75), ord("C"): math.log(0.25)}
        places = [Place(-0.5, choice if token == ord("F") else {token: 0.0}) for token in tokens]
        found = Inspector(vocabulary).confidence(specification, tokens, places)
        assert found is not None and found.keys() == {"/0", "/0/unit"}
        members = {one["value"]: one["probability"] for one in found["/0/unit"]["members"]}
        assert members == {"C": 0.25, "F": 0.75}
        assert found["/0/unit"]["mass"] == -1.5
