"""Vocabularies that lack bytes: masks agree with steps, and both with what the existing bytes can spell.

Tables are made either for all character sets or for none, since each way of computing a mask may have its own faults.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from dotllm import Guide, Index, SpecError, UnsupportedError, Vocabulary
from dotllm.charset import ANY_CHAR, living_characters
from dotllm.index import token_space
from tests.cases import few

VOCABULARIES = few(40)
LETTERS = ["a", "b", "z", "Z", "0", "7", " ", '"', "\\", "{", "}", ":", ",", "[", "]", "é", "ÿ", "€", "中", "😀"]
BOUNDED = [
    ".", ".{0,3}", ".a.", "[^b]{1,3}", "[a-z]{2}é?", r"(\w|€){1,3}", "[^\\x00-\\x60]{0,2}b?", "(.|ab){2}", "a?[^a]{0,2}z?",
    "[\\u0080-\\U0010ffff]{0,3}", "(?:[a-y]|[b-z]){0,3}", "[^é]{2}|é",
]  # fmt: skip
ENDLESS = [".*", "[^a]*a", "[a-z]+(,[^,]+)*", '"([^"\\\\]|\\\\.)*"', r"\w+|\d+\.", "(?:[^é]{1,40}é)*", ".*a.{2}"]
SCHEMAS: list[Any] = [
    {},
    {"type": "string"},
    {"type": "object"},
    {"type": "string", "minLength": 1, "maxLength": 30},
    {"type": "object", "properties": {"a": {"type": "string"}, "é": True}, "additionalProperties": {"type": "integer"}},
    {"type": "object", "patternProperties": {"^a": {"type": "null"}}},
    {"type": "array", "items": {"enum": [0, "a", "é", "😀"]}, "uniqueItems": True},
    {"type": "string", "pattern": "^[^a]*a$"},
]
GRAMMARS = [
    'start: /[a-z]+/ ("," start)?',
    'start: "{" ANY* "}"\nANY: /[^{}]/',
    'root ::= [^a]* "a" root | "b"',
]


def holey(random: Random) -> Vocabulary:
    """Some letters and their pieces, alone and joined, and fragments of other characters; no other bytes."""
    chosen = [c.encode() for c in random.sample(LETTERS, random.randint(1, 6))]
    tokens = set(chosen)
    for _ in range(random.randint(0, 25)):
        tokens.add(b"".join(random.choices(chosen, k=random.randint(1, 4))))
    whole = b"".join(random.choices(chosen, k=6))
    for _ in range(random.randint(0, 6)):  # pieces of characters
        at = random.randrange(len(whole))
        tokens.add(whole[at : at + random.randint(1, 3)])
    for _ in range(random.randint(0, 2)):
        tokens.add(bytes([random.choice((0xC3, 0xE2, 0xF0, 0x80, 0xBF, 0xFF, 0x00))]))
    if random.random() < 0.4:
        tokens -= set(random.sample(sorted(tokens), len(tokens) // 3))
    listed = sorted(tokens)
    random.shuffle(listed)
    return Vocabulary.from_bytes([*listed, b""], eos_token_ids=[len(listed)])


@pytest.fixture(params=["all tables", "no tables", "tables as they are"])
def vocabularies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vocabulary]:
    if request.param == "all tables":
        monkeypatch.setattr(token_space, "worth_tables", lambda new, *_: {number for number, _, _ in new})
    if request.param == "no tables":
        monkeypatch.setattr(token_space, "MAX_CHARSETS", 0)
    return (holey(Random(seed)) for seed in range(VOCABULARIES))


def bits(guide: Guide) -> set[int]:
    """The tokens of the mask; none if it would be empty, which is an error."""
    row = np.zeros((1, guide.index.space.words), np.int32)
    try:
        guide.write_mask(row)
    except UnsupportedError as error:
        assert error.keyword == "vocabulary"
        return set()
    assert row.any()
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def masks_agree(index: Index, random: Random, steps: int = 12) -> int:
    """Check along some texts that precisely the tokens of each mask can be taken; returns the number of masks."""
    vocabulary = index.vocabulary
    seen = 0
    for _ in range(2):
        guide = index.guide()
        for _ in range(steps):
            allowed = bits(guide)
            taken = {token for token in range(vocabulary.size) if guide.fork().advance(token)}
            assert allowed == taken, [vocabulary.token_bytes(t) for t in sorted(allowed ^ taken)]
            assert not allowed or allowed == set(guide.allowed_tokens())
            seen += 1
            going = sorted(allowed - set(vocabulary.eos_token_ids))
            if not going:
                break
            assert guide.advance(random.choice(going))
    return seen


def made(make: Any, value: Any, vocabulary: Vocabulary) -> Index | None:
    """The index, or None if the vocabulary cannot spell what the specification asks for."""
    try:
        index: Index = make(value, vocabulary)
    except SpecError as error:
        assert "bytes" in str(error) or "satisfies" in str(error) or "vocabulary" in str(error), error
        return None
    return index


def test_masks_are_what_steps_allow(vocabularies: Iterator[Vocabulary]) -> None:
    looked_at = 0
    for number, vocabulary in enumerate(vocabularies):
        random = Random(number)
        for make, values in (
            (Index.from_regex, [*BOUNDED, *ENDLESS]),
            (Index.from_json_schema, SCHEMAS),
            (Index.from_grammar, GRAMMARS),
        ):
            for value in random.sample(values, 3):
                index = made(make, value, vocabulary)
                looked_at += masks_agree(index, random) if index is not None else 0
    assert looked_at > VOCABULARIES * 20


def living(vocabulary: Vocabulary) -> set[str]:
    """The characters that bytes of tokens spell, according to Python's decoder."""
    alive = sorted(set(range(256)) - vocabulary.missing_bytes)
    found: set[str] = set()
    for length in range(1, 5):
        leads = [b for b in alive if (b < 0x80) == (length == 1) and b >= (0, 0, 0xC2, 0xE0, 0xF0)[length]]
        for lead, *rest in itertools.product(leads, *[[b for b in alive if 0x80 <= b < 0xC0]] * (length - 1)):
            try:
                found.add(bytes([lead, *rest]).decode())
            except UnicodeDecodeError:
                continue
    return {c for c in found if len(c) == 1}


def test_living_characters(vocabularies: Iterator[Vocabulary]) -> None:
    for vocabulary in vocabularies:
        alive = np.ones(256, np.bool_)
        alive[list(vocabulary.missing_bytes)] = False
        characters = living_characters(alive)
        assert {chr(c) for low, high in characters.ranges for c in range(low, high + 1)} == living(vocabulary)
    assert living_characters(np.ones(256, np.bool_)) == ANY_CHAR
    alive = np.ones(256, np.bool_)
    alive[[0xC0, 0xC1, *range(0xF5, 0x100)]] = False
    assert living_characters(alive) == ANY_CHAR
    alive[0xBF] = False
    assert living_characters(alive).size == sum(0xBF not in chr(c).encode() for c in range(0x110000) if c >> 11 != 27)


def test_masks_are_what_matches(vocabularies: Iterator[Vocabulary]) -> None:
    """Against `re`: a token is allowed if and only if it leads towards a match that consists of the existing bytes."""
    looked_at = 0
    for number, vocabulary in enumerate(vocabularies):
        characters = sorted(living(vocabulary))
        if len(characters) > 9:
            continue
        texts = ["".join(text) for n in range(5) for text in itertools.product(characters, repeat=n)]
        for pattern in Random(number).sample(BOUNDED, 4):
            matching = {text.encode() for text in texts if re.fullmatch(pattern, text, re.ASCII)}
            beginnings = {text[:n] for text in matching for n in range(len(text) + 1)}
            index = made(Index.from_regex, pattern, vocabulary)
            if index is None:
                tokens = {vocabulary.token_bytes(t) for t in range(vocabulary.size - 1)}
                assert matching <= {b""} or (b"" not in matching and tokens.isdisjoint(beginnings))
                continue
            pending = [(b"", index.guide())]
            for text, guide in pending:  # the loop extends the list
                looked_at += 1
                expected = {t for t in range(vocabulary.size - 1) if text + vocabulary.token_bytes(t) in beginnings}
                expected |= {vocabulary.size - 1} if text in matching else set()
                assert bits(guide) == expected, (pattern, text)
                for token in sorted(expected - {vocabulary.size - 1}):
                    after = guide.fork()
                    assert after.advance(token)
                    if len(pending) < 60:
                        pending.append((text + vocabulary.token_bytes(token), after))
    assert looked_at > 12 * VOCABULARIES


def test_no_token_holds_the_lowest_character_of_a_set() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b""], eos_token_ids=[1])
    guide = Index.from_regex(".", vocabulary).guide()
    assert list(guide.allowed_tokens()) == [0] and guide.advance(0)
    assert list(guide.allowed_tokens()) == [1]
