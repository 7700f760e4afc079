"""Guides that run as arrays, against guides that take their tokens one by one."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.index.running import Running
from tests.cases import few

TOKENS: list[bytes | None] = [bytes([i]) for i in range(126)] + [b"ab", b"ca", None]
EOS = 128
LANGUAGES = ("(ab|c){4,9}", "[a-c]*", "(a|b)*c(ab)*", '"[^"]*"', "a{300}")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)


def some_token(guide: Guide, chance: random.Random) -> int:
    if chance.random() < 0.1:
        return chance.choice([-1, EOS, len(TOKENS), ord("z"), 127])
    return chance.choice(list(guide.allowed_tokens()))


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("seed", range(few(6)))
def test_as_guides_alone(vocabulary: Vocabulary, seed: int, looks: bool) -> None:
    """Tokens, rows and histories; guides enter, leave and re-enter in any order, mixed with names that do not run; with
    looks ahead at the tokens that come, or at others."""
    chance = random.Random(seed)
    indexes = [Index.from_regex(language, vocabulary) for language in LANGUAGES]
    running = Running(indexes[0].space)
    pairs: dict[str, tuple[Guide, Guide]] = {}
    for step in range(400):
        for name in [name for name in pairs if chance.random() < 0.01]:
            running.leave(name)
        if chance.random() < 0.3 and len(pairs) < 90:
            index = chance.choice(indexes)
            pairs[str(step)] = index.guide(), index.guide()
        for name, (guide, _) in pairs.items():
            if name not in running and not guide.is_finished and chance.random() < 0.7:
                running.enter(name, guide)
        names = [*pairs, "another"]
        if chance.random() < 0.5:
            chance.shuffle(names)
        rows, missing = running.rows(names)
        for name, row in zip(names, rows.tolist(), strict=True):
            assert row == (pairs[name][1].mask_row if name in running else -1)
        absent = [i for i, name in enumerate(names) if name not in running]
        assert sorted(missing) == sorted(running.absent(names)) == absent
        if chance.random() < 0.3:  # another batch in flight
            rows, missing = running.rows(names[::2])
            assert rows.tolist() == [pairs[name][1].mask_row if name in running else -1 for name in names[::2]]
            assert {names[2 * i] for i in missing} == {*names[::2]}.difference(running)
        tokens = [[some_token(pairs[name][1], chance)] if name in pairs else [] for name in names]
        ran = {*running}
        if looks:
            wrong = chance.random() < 0.2
            running.look_ahead(names, np.array([[*own, -1][0] ^ wrong for own in tokens], np.int64))
            time.sleep(chance.choice([0, 0, 1e-4]))
        others = {names[i] for i in running.take(names, tokens)}
        assert "another" in others and {*names} - others <= ran
        for name, token in zip(names, tokens, strict=True):
            if name not in pairs:
                continue
            guide, alone = pairs[name]
            assert not (name in others and name in running)
            if name in others:
                guide.advance(token[0])
            assert alone.advance(token[0]) or name in others
            assert (name in running) == (name in ran and name not in others and not alone.is_finished)
            if name not in running:
                assert guide.config == alone.config and guide.tokens_taken == alone.tokens_taken
        for name in [name for name, (_, alone) in pairs.items() if alone.is_finished]:
            del pairs[name]
    for name, (guide, alone) in pairs.items():
        running.leave(name)
        assert guide.config == alone.config and guide.tokens_taken == alone.tokens_taken
        steps = guide.tokens_taken
        guide.rollback(steps)
        alone.rollback(steps)
        assert guide.config == alone.config
    assert not [*running] and not running._indexes and not running._guides


def test_most_tokens_are_taken_by_the_call(vocabulary: Vocabulary) -> None:
    """All but those that need something else first: at intervals, a guide's history has to be recorded."""
    index = Index.from_regex("[a-c]*", vocabulary)
    running, guide = Running(index.space), index.guide()
    left = 0
    for _ in range(1000):
        if "one" not in running:
            running.enter("one", guide)
        if running.take(["one"], [[ord("b")]]):
            assert "one" not in running
            assert guide.advance(ord("b"))
            left += 1
    running.leave("one")
    assert guide.tokens_taken == 1000 and left < 20


def test_an_index_that_grows_in_between(vocabulary: Vocabulary) -> None:
    """Its memory moves, and the arrays have the new address before the next call."""
    index = Index.from_regex("([a-c]{1,40}[0-9]){1,40}", vocabulary)
    running, guide, before = Running(index.space), index.guide(), index.mem
    running.enter("one", guide)
    assert running.take(["one"], [[ord("a")]]) == []
    other, chance = index.guide(), random.Random(1)
    while index.mem is before:
        other.advance(chance.choice(list(other.allowed_tokens())))
        if other.is_finished:
            other = index.guide()
    running.rows(["one"])
    if running.take(["one"], [[ord("b")]]):  # (it needed something else first)
        guide.advance(ord("b"))
        running.enter("one", guide)
    rows, missing = running.rows(["one"])
    running.leave("one")
    assert guide.tokens_taken == 2 and not missing
    assert rows.tolist() == [guide.mask_row] and np.array_equal(index.masks[rows[0]], index.masks[guide.mask_row])
