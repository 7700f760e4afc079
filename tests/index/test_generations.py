"""A full index is renewed: guides move on, new guides begin, and callers do not notice."""

from __future__ import annotations

import gc
import json
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine.arena import DEFAULT_LIMIT
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Grammar
from dotllm.index import advance_guides, fill_masks, mask_rows, token_space
from dotllm.index.draft_rows import mask_rows_along
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.regex import regex_to_grammar
from tests.cases import few
from tests.fuzz import makers
from tests.fuzz.targets import long_lived

NESTED = "([a-z]{1,200},){1,200}"


def words(rng: random.Random, count: int) -> bytes:
    """A text of NESTED; the length of each word makes new counters."""
    return b"".join(b"a" * rng.randint(1, 60) + b"," for _ in range(count))


def mask_of(guide: Guide) -> list[int]:
    bitmask = np.zeros((1, guide.index.vocabulary.words), np.int32)
    guide.write_mask(bitmask)
    return bitmask[0].tolist()


def small(grammar: Grammar, vocabulary: Vocabulary, limit: int) -> Index:
    return Index.from_grammar_object(grammar, vocabulary, limit=limit)


def test_an_index_lives_for_ever(bytes_vocabulary: Vocabulary) -> None:
    """An index whose arena was full once refused every guide for good."""
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 200_000)
    rng = random.Random(1)
    for _ in range(60):
        guide = index.guide()
        for byte in words(rng, 20):
            assert guide.advance(byte)
        assert guide.can_finish
    assert len(index.generations) <= 3
    assert sum(generation.nbytes for generation in index.generations) <= 3 * 4 * 200_000


def test_a_guide_moves_with_its_history(bytes_vocabulary: Vocabulary) -> None:
    """Forked, rolled back past the move and replayed, it equals a guide on a large index."""
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 100_000)
    large = small(regex_to_grammar(NESTED), bytes_vocabulary, DEFAULT_LIMIT)
    rng = random.Random(2)
    text = words(rng, 12)
    guide, twin = index.guide(), large.guide()
    begun = guide.index
    for byte in text:
        assert guide.advance(byte) and twin.advance(byte)
        if rng.random() < 0.1:
            assert mask_of(guide) == mask_of(twin) and guide.forced_bytes() == twin.forced_bytes()
    assert guide.index is not begun, "it has moved"
    fork, back = guide.fork(), guide.fork()
    back.rollback(len(text))
    assert back.index is begun and not back._left, "back where it began"
    while text:
        count = rng.randint(1, min(len(text), 40))
        guide.rollback(count)
        twin.rollback(count)
        text = text[:-count]
        assert guide.tokens_taken == len(text) == twin.tokens_taken
        assert mask_of(guide) == mask_of(twin) and guide.can_finish == twin.can_finish
        if rng.random() < 0.3 and text:
            more = text[-1:] if text[-1:] != b"," else b"b"
            assert guide.advance(more[0]) == twin.advance(more[0])
            guide.rollback(1)
            twin.rollback(1)
    guide.reset()
    assert mask_of(guide) == mask_of(large.guide()) and not fork.is_finished


def test_long_answers_at_once_do_not_end_one_another(bytes_vocabulary: Vocabulary) -> None:
    """Each of them alone nearly fills an index."""
    names = [f"v{i}" for i in range(40)]
    schema = json.dumps({"type": "array", "items": {"enum": names}, "uniqueItems": True})
    grammar, limit = json_schema_to_grammar(schema), 450_000
    index = small(grammar, bytes_vocabulary, limit)
    rng = random.Random(3)
    texts = [json.dumps(rng.sample(names, 36), separators=(",", ":")).encode() for _ in range(6)]
    for text in texts:  # each one fits alone
        alone = small(grammar, bytes_vocabulary, limit).guide()
        assert all(map(alone.advance, text)) and not alone._left
    guides = [index.guide() for _ in texts]
    bitmask = np.zeros((len(texts), bytes_vocabulary.words), np.int32)
    for at in range(max(map(len, texts))):
        here = [i for i, text in enumerate(texts) if at < len(text)]
        assert not fill_masks([guides[i] for i in here], bitmask, here)
        assert not mask_rows([guides[i] for i in here])[1]
        for i in here:
            assert bitmask[i, texts[i][at] >> 5] >> (texts[i][at] & 31) & 1
        accepted, failures = advance_guides([guides[i] for i in here], [texts[i][at] for i in here])
        assert all(accepted) and not failures
    assert len({guide.index for guide in guides}) > 2
    del guides
    gc.collect()
    index.guide()
    assert len(index.generations) <= 2, "what nobody stands on is forgotten"


def test_an_answer_that_needs_more_than_an_index_ends_by_name(bytes_vocabulary: Vocabulary) -> None:
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 60_000)
    guide = index.guide()
    with pytest.raises(BudgetExceededError, match="MiB"):
        for byte in words(random.Random(4), 200):
            assert guide.advance(byte)
    assert len(guide._left) == 2, "it was the only one on the last of them"
    other = index.guide()
    assert all(map(other.advance, b"abc,d,")), "and it alone"
    accepted, failures = advance_guides([guide, other], [ord("a"), ord("e")])
    assert accepted[1] and (accepted[0] or isinstance(failures[0], BudgetExceededError))


def test_drafts_move_their_guides(bytes_vocabulary: Vocabulary) -> None:
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 130_000)
    twin = small(regex_to_grammar(NESTED), bytes_vocabulary, DEFAULT_LIMIT).guide()
    rng = random.Random(5)
    guides = [index.guide() for _ in range(3)]
    for _ in range(14):
        draft = list(words(rng, 1))
        rows, _, failures = mask_rows_along(guides, [draft] * 3)
        assert not failures
        expected = mask_rows_along([twin], [draft])[0].tolist()
        assert rows.tolist() == expected * 3
        for guide in (*guides, twin):
            assert guide.accepts([*draft, ord(",")]) == len(draft)
            assert all(map(guide.advance, draft))
    assert guides[0].index is not index


def test_threads_on_an_index_that_is_renewed_all_the_time(bytes_vocabulary: Vocabulary) -> None:
    schema = {"type": "array", "items": {"enum": [f"v{i}" for i in range(24)]}, "uniqueItems": True}
    index = small(json_schema_to_grammar(json.dumps(schema)), bytes_vocabulary, 200_000)  # twice what an answer needs
    wrong: list[Any] = []

    def answer(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(25):
                items = rng.sample(schema["items"]["enum"], rng.randint(1, 20))
                guide = index.guide()
                for byte in json.dumps(items, separators=(",", ":")).encode():
                    assert guide.advance(byte)
                    if rng.random() < 0.2:
                        assert not mask_rows([guide, guide.fork()])[1]
                assert guide.can_finish
                again = index.guide()
                text = json.dumps([items[0], items[0]], separators=(",", ":")).encode()
                assert not all(map(again.advance, text)), "and still no item twice"
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=answer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index.generations) <= 7


def test_what_is_full_goes_with_its_guides(bytes_vocabulary: Vocabulary) -> None:
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 100_000)
    guide = index.guide()
    for byte in words(random.Random(6), 12):
        guide.advance(byte)
    left = weakref.ref(guide.index)
    newer = guide.index.newest(guide.index)
    del index
    guide.reset()
    assert left() is None or left() is newer or left() is guide.index
    assert all(map(guide.advance, b"abc,"))


def test_no_generation_keeps_another_but_the_newest(bytes_vocabulary: Vocabulary) -> None:
    """Once the first generation referred to the second, the second to the third, and so on."""
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 100_000)
    newest = index
    for _ in range(10):
        newest = newest.newest(newest)
    assert len(index.generations) == 2 and index.newest() is newest


def test_saved_and_loaded_it_goes_on(bytes_vocabulary: Vocabulary) -> None:
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, 100_000)
    rng = random.Random(7)
    for _ in range(5):
        assert all(map(index.guide().advance, words(rng, 4)))
        guide = index.guide()
        assert all(map(guide.advance, words(rng, 4)))
        loaded = Index.from_bytes(index.to_bytes(), bytes_vocabulary)
        assert mask_of(loaded.guide()) == mask_of(index.guide())
        more = loaded.guide()
        assert all(map(more.advance, words(rng, 4)))


@pytest.mark.parametrize("limit", [70_000, 90_000, 150_000])
def test_limits_on_tokens_are_kept_across_moves(bytes_vocabulary: Vocabulary, limit: int) -> None:
    index = small(regex_to_grammar(NESTED), bytes_vocabulary, limit)
    rng = random.Random(limit)
    for _ in range(12):
        guide, left = index.guide(), rng.randint(8, 60)
        bitmask = np.zeros((1, bytes_vocabulary.words), np.int32)
        while not guide.is_finished:
            assert left > 0
            guide.write_mask(bitmask, 0, left)
            allowed = np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little")).tolist()
            assert guide.advance(rng.choice(allowed))
            left -= 1


@pytest.mark.parametrize("order", ["any", "declared"])
@pytest.mark.parametrize("seed", range(few(12)))
def test_many_answers_on_one_index(seed: int, order: str) -> None:
    """`make fuzz` does this with thousands of answers (``ANSWERS=10000``)."""
    rng = random.Random(seed)
    long_lived(rng, makers.growing(rng), order, 8)


def test_all_indexes_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide of the index that takes most fails with a named error; the other indexes go on, and grow."""
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)]
    vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=256)
    greedy, modest = (
        Index.from_regex(f"(?:[a-z]{{1,{n}}}[a-y]{{1,{n}}}[b-z]{{1,{n}}}){{4}}", vocabulary) for n in (60, 6)
    )
    monkeypatch.setattr(token_space, "LARGE", 1 << 16)
    monkeypatch.setattr(token_space, "MAX_TOGETHER", 3 << 19)
    guide, other = greedy.guide(), modest.guide()
    with pytest.raises(BudgetExceededError, match="the automata of all requests need more than 1 MiB"):
        for step in range(400):
            assert guide.advance(ord("b") + step % 20)
    assert greedy.nbytes > 1 << 20
    taken = guide.tokens_taken
    states = modest.states
    for step in range(24):
        assert other.advance(ord("b") + step % 20)
        assert other.mask_row >= 0
    assert modest.states > states and guide.tokens_taken == taken


def test_an_index_that_nobody_uses_takes_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache, or a program, may keep any number of large indexes: only those with guides count."""
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)]
    vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=256)
    monkeypatch.setattr(token_space, "LARGE", 1 << 14)
    kept = [Index.from_regex(f"(?:[a-z]{{1,{n}}}[a-y]{{1,{n}}}[b-z]{{1,{n}}}){{4}}", vocabulary) for n in range(30, 46)]
    guides = [index.guide() for index in kept]
    for guide in guides:
        for step in range(40):
            assert guide.advance(ord("b") + step % 20)
    monkeypatch.setattr(token_space, "MAX_TOGETHER", 6 * max(index.nbytes for index in kept))

    def goes_on() -> None:
        for step in range(60):
            assert guide.advance(ord("b") + step % 20)

    with pytest.raises(BudgetExceededError, match="the automata of all requests need more than"):
        goes_on()
    guides.clear()
    goes_on()


def test_an_index_to_which_a_guide_may_roll_back_is_used() -> None:
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)]
    vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=256)
    index = Index.from_regex("[a-z]{1,90}", vocabulary)
    assert not index.is_used
    guide = index.guide()
    assert index.is_used
    fork = guide.fork()
    assert guide.advance(97) and guide.move_on()
    later = guide.index
    assert later is not index
    del fork
    assert index.is_used and later.is_used
    guide.rollback(1)
    assert guide.index is index and not later.is_used
    assert guide.advance(97) and guide.move_on() and guide.advance(97) and guide.move_on()
    private = guide.index
    guide.rollback(2)
    assert guide.index is index and private.is_used, "it would go back there"
    del guide
    assert not private.is_used
    assert not index.is_used
