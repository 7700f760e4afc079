"""Hurried steps: work that they leave undone is done later, and the outcome is the same as without the hurry."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine import arena
from dotllm.automata.machine.arena import Unfinished
from dotllm.index import batch
from dotllm.index.batch import advance_guides, rows_of
from dotllm.index.running import Running
from dotllm.index.walkable import Locks

TOKENS: list[bytes | None] = [*(bytes([i]) for i in range(128)), b"ab", b"ba", b"aab", b"if ", b"else ", None]
EOS = len(TOKENS) - 1
HOSTILE = {
    "pattern": "(?:[a-z]{1,9}[a-y]{1,9}[a-x]{1,9}[b-z]{1,9}){5}",
    "grammar": 'start: e\ne: e e e | e e | "a" | "b" | "ab" | "ba" |\n',
    "dangling": 'start: s\ns: "if " s | "if " s "else " s | "a"\n',
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)


def compiled(kind: str, vocabulary: Vocabulary) -> Index:
    make = Index.from_regex if kind == "pattern" else Index.from_grammar
    return make(HOSTILE[kind], vocabulary)


def hurried_row(guide: Guide) -> int:
    """The row of the guide's mask, or -1 if it is unfinished."""
    with Locks([guide.index]):
        rows, failures = rows_of([guide.index], np.array([guide.config], np.int32), hurried=True)
    assert all(isinstance(failure, Unfinished) for failure in failures.values())
    assert (rows[0] < 0) == (0 in failures)
    return int(rows[0])


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("seed", range(3))
def test_the_outcome_is_the_same(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    """Wherever and however often a hurried step stops."""
    chance = random.Random(seed)
    guide, alone = compiled(kind, vocabulary).guide(), compiled(kind, vocabulary).guide()
    unfinished = 0
    for _ in range(40):
        row = -1
        for _ in range(chance.randrange(4)):
            monkeypatch.setattr(batch, "HURRIED_FUEL", chance.choice([0, 3, 30, 300]))
            monkeypatch.setattr(arena, "_QUICKLY_COPIED", chance.choice([0, 1 << 18]))
            row = hurried_row(guide)
            unfinished += row < 0
        row = guide.mask_row if row < 0 else row
        assert np.array_equal(guide.index.masks[row], alone.index.masks[alone.mask_row])
        tokens = [token for token in alone.allowed_tokens() if token != EOS]
        if not tokens:
            break
        token = chance.choice([token for token in tokens if token != ord("a")] or tokens)
        assert alone.advance(token)
        (taken,), failures = advance_guides([guide], [token], hurried=True)
        assert taken != bool(failures) and all(isinstance(failure, Unfinished) for failure in failures.values())
        unfinished += len(failures)
        assert taken or guide.advance(token)
        assert guide.tokens_taken == alone.tokens_taken
    assert unfinished > 5


def test_what_is_not_done_leaves_the_batch(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else leaves it; the tokens of unfinished guides are not taken."""
    easy, hostile = Index.from_regex("[ab]*", vocabulary), compiled("grammar", vocabulary)
    warm = easy.guide()
    assert warm.mask_row >= 0 and warm.advance(ord("a")) and warm.mask_row >= 0
    running = Running(easy.space)
    guides = {"easy": easy.guide(), "hostile": hostile.guide(), "another": hostile.guide()}
    names = [*guides]
    for name, guide in guides.items():
        running.enter(name, guide)
    monkeypatch.setattr("dotllm.index.running.HURRIED_FUEL", 0)
    monkeypatch.setattr(batch, "HURRIED_FUEL", 0)
    assert running.take(names, [[ord("a")]] * 3) == [1, 2]
    assert [*running] == ["easy"] and guides["hostile"].tokens_taken == guides["another"].tokens_taken == 0
    assert guides["hostile"].advance(ord("a")) and guides["another"].mask_row >= 0
    for name in names[1:]:
        running.enter(name, guides[name])
    rows, missing = running.rows(names)
    assert rows[0] >= 0 and rows[1] == -1 and rows[2] >= 0 and missing == [1]
    assert {*running} == {"easy", "another"}
    assert running.leave_all(hostile.lock) == {"another": rows[2]} and [*running] == ["easy"]


def test_a_large_automaton_is_not_copied_in_a_hurry(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = compiled("grammar", vocabulary).guide()
    monkeypatch.setattr(arena, "_QUICKLY_COPIED", 0)
    monkeypatch.setattr(batch, "HURRIED_FUEL", arena.FUEL)
    while hurried_row(guide) >= 0 and advance_guides([guide], [ord("a")], hurried=True)[0][0]:
        assert guide.tokens_taken < 200
    used = arena.used(guide.index.mem)
    assert guide.mask_row >= 0 and guide.advance(ord("a")) and guide.mask_row >= 0
    assert arena.used(guide.index.mem) > used
