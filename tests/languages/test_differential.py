"""The corpus in dotllm, llguidance, xgrammar and Lark: verdicts, and dotllm's masks against brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, lru_cache

import pytest

from dotllm import Index, Vocabulary
from dotllm.grammar import Grammar
from dotllm.languages.cfg import grammar_to_grammar
from tests.cases import few
from tests.grammar.reference import Recogniser, accepts
from tests.languages.difference_table import PAGE, page_with_table
from tests.languages.grammar_cases import DIFFERENCES, Case, cases
from tests.languages.grammar_peers import PEERS, Refused
from tests.languages.grammar_texts import texts_for

NAMED = {case.name: case for case in cases()}
everywhere = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """All bytes, and pieces of two to six bytes from the corpus's texts: some 900 tokens."""
    rng = random.Random(0)
    pieces: set[bytes] = set()
    for case in cases():
        data = "\n".join(case.yes).encode()
        for _ in range(12):
            at = rng.randrange(len(data) + 1)
            pieces.add(data[at : at + rng.randint(2, 6)])
    words = [bytes((byte,)) for byte in range(256)] + sorted(piece for piece in pieces if len(piece) > 1)
    return Vocabulary.from_bytes([*words, None], eos_token_ids=[len(words)])


@lru_cache(maxsize=4)
def index(name: str) -> Index:
    return Index.from_grammar(NAMED[name].grammar, vocabulary())


@cache
def grammar_of(name: str) -> Grammar:
    return grammar_to_grammar(NAMED[name].grammar)


@cache
def is_right(name: str, text: str) -> bool:
    """The oracle's verdict, which the engine and three peers are compared with."""
    return accepts(grammar_of(name), text.encode())


@everywhere
def test_verdicts_of_the_engine(case: Case) -> None:
    for text in texts_for(grammar_of(case.name), case.yes, case.no, seed=7, walks=few(3)):
        guide = index(case.name).guide()
        verdict = all(guide.advance(byte) for byte in text.encode()) and guide.can_finish
        assert verdict == is_right(case.name, text), text


def brute_force(recogniser: Recogniser) -> Iterator[int]:
    """Every token whose bytes the oracle can read from here, and the end token if it can finish."""
    words = vocabulary_bytes()
    for token, word in enumerate(words):
        state = recogniser.copy()
        if all(state.feed(byte) for byte in word):
            yield token
    if recogniser.can_finish:
        yield len(words)


@lru_cache(maxsize=1)
def vocabulary_bytes() -> list[bytes]:
    v = vocabulary()
    return [
        bytes(v.token_data[v.token_offset[token] : v.token_offset[token + 1]])
        for token in range(v.size)
        if token not in v.eos_token_ids
    ]


@everywhere
def test_masks_are_what_brute_force_finds(case: Case) -> None:
    """At three places of a text: its beginning, its end, and one between."""
    rng = random.Random(len(case.name))
    data = max(case.yes, key=len).encode()
    places = {0, len(data), rng.randint(0, len(data))}
    recogniser, guide = Recogniser(grammar_of(case.name)), index(case.name).guide()
    for at in range(len(data) + 1):
        if at in places:
            assert sorted(guide.allowed_tokens()) == sorted(brute_force(recogniser)), data[:at]
        if at < len(data):
            assert recogniser.feed(data[at])
            assert guide.advance(data[at])


@everywhere
@pytest.mark.parametrize("peer", PEERS)
def test_peers(case: Case, peer: str) -> None:
    """They agree with the oracle on every text, except where `differences.json` says why they do not."""
    if peer == "lark" and case.notation != "lark":
        pytest.skip("not Lark")
    listed = DIFFERENCES.get(f"{case.name}/{peer}")
    try:
        verdict = PEERS[peer](case)
    except Refused as refusal:
        assert listed is not None, f"{peer} refuses: {refusal}"
        return
    given = [text for text in (*case.yes, *case.no) if verdict(text) != is_right(case.name, text)]
    if listed is None:
        texts = texts_for(grammar_of(case.name), case.yes, case.no, seed=7)
        different = given or [text for text in texts if verdict(text) != is_right(case.name, text)]
        assert not different, f"{peer} judges differently: {different[:5]}"
    else:
        assert given, f"{peer} judges every text as the oracle does: the difference is gone"


def test_differences_are_of_known_cases() -> None:
    for key, entry in DIFFERENCES.items():
        name, peer = key.split("/")
        assert name in NAMED
        assert peer in PEERS
        assert entry["right"] in ("dotllm", "policy", "peer extension")
        assert entry["why"]


def test_the_page_lists_all_differences() -> None:
    """Update it with ``python -m tests.languages.difference_table``."""
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_table(page) == page
