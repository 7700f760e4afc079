"""Batches whose guides all need more room in the same place: it grows once for all of them, and only as needed."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine import arena, layout
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError
from dotllm.index import advance_guides, fill_masks, mask_rows, token_space
from dotllm.index.draft_rows import NO_MASK, mask_rows_along
from dotllm.index.token_space import Ranges, TokenSpace

GUIDES, MOST_BYTES = 128, 64 << 20
LARK = """
start: term (("+" | "-") term)*
term: atom (("*" | "/") atom)*
atom: NUMBER | NAME | "(" start ")"
NUMBER: /[0-9]+(\\.[0-9]+)?/
NAME: /[a-z]+/
"""
ARRAY = {
    "type": "array",
    "items": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "array"}}},
}
UNIQUE = {"type": "array", "uniqueItems": True, "items": {"enum": [1, 2, "x", "y"]}}
TWO = {"type": "object", "properties": {"alpha": {"type": "string"}, "beta": {"type": "integer"}}}
MAKE: dict[str, Callable[[Vocabulary], Index]] = {
    "object": lambda vocabulary: Index.from_json_schema({"type": "object"}, vocabulary),
    "two properties": lambda vocabulary: Index.from_json_schema(TWO | {"required": ["alpha", "beta"]}, vocabulary),
    "array": lambda vocabulary: Index.from_json_schema(ARRAY, vocabulary),
    "lark": lambda vocabulary: Index.from_grammar(LARK, vocabulary),
    "unique": lambda vocabulary: Index.from_json_schema(UNIQUE, vocabulary),
}


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    """Tokens that open and close many values together, which makes an arena large."""
    random = Random(22)

    def value(depth: int) -> str:
        kind = random.choice("{[{[n" if depth < 6 else "n")
        if kind == "n":
            return random.choice(["1", "20", '"x"', '"y"', "true", "[]", "{}"])
        inner = [value(depth + 1) for _ in range(random.randint(1, 3))]
        if kind == "[":
            return f"[{', '.join(inner)}]"
        return "{" + ",".join(f'"{random.choice(("a", "b", "alpha", "beta"))}": {one}' for one in inner) + "}"

    tokens = {bytes([i]) for i in range(256)}
    while len(tokens) < 6000:
        text = (
            value(0) if random.random() < 0.8 else "(" * random.randint(0, 9) + "a+1.5*(b-" + ")" * random.randint(0, 9)
        )
        start = random.randrange(len(text))
        tokens.add(text[start : start + random.randint(2, 14)].encode())
    return Vocabulary.from_bytes([*sorted(tokens), b""], eos_token_ids=[len(tokens)])


def allowed(vocabulary: Vocabulary, mask: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def walk(guides: Sequence[Guide], steps: int, seed: int) -> list[list[int]]:
    """Move all guides at random, with one call per step; returns each guide's tokens. No guide may fail."""
    random, vocabulary = Random(seed), guides[0].index.vocabulary
    taken: list[list[int]] = [[] for _ in guides]
    bitmask = np.empty((len(guides), vocabulary.words), np.int32)
    for _ in range(steps):
        assert not fill_masks(guides, bitmask)
        drawn = [random.choice(allowed(vocabulary, row).tolist()) for row in bitmask]
        going = [i for i, guide in enumerate(guides) if not guide.is_finished]
        accepted, failures = advance_guides([guides[i] for i in going], [drawn[i] for i in going])
        assert not failures and all(accepted)
        for i in going:
            taken[i].append(drawn[i])
    return taken


def capacities(index: Index) -> list[int]:
    return index.mem[layout.R : layout.R + 3 * layout.REGIONS].reshape(-1, 3)[:, 1].tolist()


@pytest.mark.parametrize("names", [*([name] for name in MAKE), [*MAKE]], ids=lambda names: "+".join(names))
def test_many_guides_of_a_new_index(names: list[str], words: Vocabulary) -> None:
    """A batch needs at most twice as much memory as its guides need one after another. (It may need more at all because
    a full region grows fourfold.)"""
    indexes = [MAKE[name](words) for name in names]
    guides = [indexes[i % len(indexes)].guide() for i in range(GUIDES)]
    taken = walk(guides, 8, seed=len(names))
    alone = [MAKE[name](words) for name in names]
    for i, tokens in enumerate(taken):
        guide = alone[i % len(alone)].guide()
        for token in tokens:
            assert guide.mask_row >= 0 and guide.advance(token)
    for batch, one in zip(indexes, alone, strict=True):
        assert batch.nbytes < MOST_BYTES
        assert batch.nbytes <= 2 * one.nbytes + (1 << 20)
        assert batch.configurations == one.configurations or batch.unique_nodes


@pytest.mark.parametrize("names", [["object"], [*MAKE]], ids=lambda names: "+".join(names))
def test_drafts_of_many_guides_of_a_new_index(names: list[str], words: Vocabulary) -> None:
    known = [MAKE[name](words) for name in names]
    drafts = walk([known[i % len(known)].guide() for i in range(GUIDES)], 8, seed=5)
    indexes = [MAKE[name](words) for name in names]
    guides = [indexes[i % len(indexes)].guide() for i in range(GUIDES)]
    rows, _, failures = mask_rows_along(guides, drafts)
    assert not failures
    at = 0
    for i, tokens in enumerate(drafts):
        guide = known[i % len(known)].guide()
        for token in tokens:
            assert np.array_equal(guide.index.masks[guide.mask_row], guides[i].index.masks[rows[at]])
            assert guide.advance(token)
            at += 1
        at += 1
    for index, one in zip(indexes, known, strict=True):
        assert index.nbytes < MOST_BYTES
        assert index.nbytes <= 2 * one.nbytes + (1 << 20)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_region_is_full_at_first(threads: int, words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas that begin with room for a handful of entries give the same masks and steps as large arenas."""
    known = [make(words) for make in MAKE.values()]
    drafts = expected = walk([known[i % len(known)].guide() for i in range(60)], 8, seed=1)
    least = {layout.LISTS: 8, layout.TRIPLES: 8, layout.BUFFER: 64, layout.LOCAL: 1}
    tiny = tuple(least.get(region, 2) if first else 0 for region, first in enumerate(arena._INITIAL))
    monkeypatch.setattr(arena, "_INITIAL", tiny)
    grown: Counter[int] = Counter()
    grow = arena.grow

    def noted(mem: np.ndarray, region: int) -> np.ndarray:
        grown[region] += 1
        return grow(mem, region)

    monkeypatch.setattr(arena, "grow", noted)
    cold = [make(words) for make in MAKE.values()]
    guides = [cold[i % len(cold)].guide() for i in range(60)]
    reference = [known[i % len(known)].guide() for i in range(60)]
    for step in range(8):
        rows, failures = mask_rows(guides, threads)
        assert not failures and rows.tolist() == [guide.mask_row for guide in reference]
        assert [guide.forced_tokens() for guide in guides] == [guide.forced_tokens() for guide in reference]
        assert [guide.tokens_to_finish for guide in guides] == [guide.tokens_to_finish for guide in reference]
        going = [i for i in range(60) if step < len(expected[i])]
        tokens = [expected[i][step] for i in going]
        accepted, failures = advance_guides([guides[i] for i in going], tokens)
        assert not failures and all(accepted)
        assert all(reference[i].advance(token) for i, token in zip(going, tokens, strict=True))
    also = [make(words) for make in MAKE.values()]
    found, _, failures = mask_rows_along([also[i % len(also)].guide() for i in range(60)], drafts)
    assert not failures
    reference = [known[i % len(known)].guide() for i in range(60)]
    assert found.tolist() == [
        row
        for guide, tokens in zip(reference, drafts, strict=True)
        for row in [guide.mask_row, *(guide.mask_row for token in tokens if guide.advance(token))]
    ]
    every = {region for region, first in enumerate(arena._INITIAL) if first}
    assert set(grown) == every, "each region was full in some batch"
    for index, one in zip([*cold, *also], [*known, *known], strict=True):
        assert all(a <= 4 * b for a, b in zip(capacities(index), capacities(one), strict=True))


def fill_up(index: Index, region: int, guides: Sequence[Guide]) -> None:
    """Make a region full and unable to grow, and keep these guides from moving on, as if they had filled it."""
    for guide in guides:
        guide._own = index, index.lease
    index.mem[layout.H_LIMIT] = 1
    index.mem[layout.R + 3 * region + 1] = min(index.mem[layout.R + 3 * region + 1], 1)


def test_what_may_not_grow_is_asked_for_once(words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """All guides of an index at its limit fail, guides of other indexes do not, and nothing is copied to find out."""
    asked: Counter[tuple[int, int]] = Counter()
    grow = arena.grow

    def noted(mem: np.ndarray, region: int) -> np.ndarray:
        asked[id(mem), region] += 1
        return grow(mem, region)

    monkeypatch.setattr(arena, "grow", noted)
    monkeypatch.setattr(arena, "_copy", lambda *_: pytest.fail("copied"))
    full, good = Index.from_regex("([a-z]{1,200},){1,200}", words), Index.from_regex("[a-z]+", words)
    texts = [b"a", b"ab", b"abc", b"abcd"]
    guides = [full.guide() for _ in range(40)]
    for i, guide in enumerate(guides):
        assert all(guide.advance(words.encode(bytes([c]))[0]) for c in texts[i % 4])
    alone = guides
    fill_up(full, layout.LOCAL, alone)
    guides = [guide for one in guides for guide in (one, good.guide())]
    bad = set(range(0, 80, 2))
    bitmask = np.full((80, words.words), -1, np.int32)
    failures = fill_masks(guides, bitmask)
    assert set(failures) == bad and all("MiB" in str(error) for error in failures.values())
    assert not bitmask[::2].any() and bitmask[1::2].any(axis=1).all()
    assert max(asked.values()) == 1
    asked.clear()
    fill_up(full, layout.CONFIG, alone)
    token = words.encode(b",")[0]
    accepted, failures = advance_guides(guides, [token] * 80)
    assert set(failures) == bad and not any(accepted)
    rows, _, failures = mask_rows_along(guides, [[token]] * 80)
    assert set(failures) == bad and (rows.reshape(-1, 2)[::2] == NO_MASK).all()
    assert set(asked.values()) == {2}, "once in each of the two calls"


def test_a_failure_holds_no_index(words: Vocabulary) -> None:
    gc.collect()
    gc.disable()
    try:
        index = Index.from_regex("([a-z]{1,200},){1,200}", words)
        there, guides = weakref.ref(index), [index.guide() for _ in range(4)]
        fill_up(index, layout.LOCAL, guides)
        failures = [*mask_rows(guides)[1].values(), *mask_rows_along(guides, [[1]] * 4)[2].values()]
        fill_up(index, layout.CONFIG, guides)
        failures.extend(advance_guides(guides, [words.encode(b"a")[0]] * 4)[1].values())
        assert len(failures) == 12
        del index, guides
        assert there() is None
    finally:
        gc.enable()


def space_of(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> TokenSpace:
    """The token space of a new vocabulary, with small tables."""
    for name, size in sizes.items():
        monkeypatch.setattr(token_space, name, size)
    return TokenSpace.of(vocabulary)


def copy_of(vocabulary: Vocabulary) -> Vocabulary:
    tokens = [vocabulary.token_bytes(i) for i in range(vocabulary.size)]
    return Vocabulary.from_bytes(tokens, eos_token_ids=sorted(vocabulary.eos_token_ids))


def test_a_full_table_of_rows(words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guides whose masks are known, or equal to known ones, get them; the others fail until rows are collected."""
    vocabulary = copy_of(words)
    space = space_of(vocabulary, monkeypatch, MAX_ROWS=24)
    kept = [Index.from_regex(f"{chr(97 + i)}+", vocabulary) for i in range(20)]
    for index in kept:
        assert index.guide().mask_row >= 0
    new = [Index.from_regex(f"[a-{chr(98 + i)}]+", vocabulary) for i in range(12)]
    same = [Index.from_regex(f"{chr(97 + i)}+b", vocabulary) for i in range(12)]
    guides = [index.guide() for index in [*new, *same, *kept] for _ in range(2)]
    rows, failures = mask_rows(guides)
    assert space.row_count == 24
    room = 24 - 1 - len(kept)
    assert 2 * (12 - room) <= len(failures) < len(guides) - 2 * len(kept)
    assert all(isinstance(error, BudgetExceededError) and "masks" in str(error) for error in failures.values())
    assert not failures.keys() & set(range(len(guides) - 2 * len(kept), len(guides)))
    for i, guide in enumerate(guides):
        if i not in failures:
            assert guide.mask_row == rows[i]
    kept.clear()
    same.clear()
    failed = [guides[i] for i in failures][:10]
    guides.clear()
    for _ in range(3):
        space.collect()
    assert not mask_rows(failed)[1]


def test_a_set_for_whose_numbers_there_is_no_room_takes_none(words: Vocabulary) -> None:
    space = TokenSpace.of(copy_of(words))
    space._ints = Ranges(2)
    before = space.nbytes
    assert [space.charset_number(CharSet.of((97, 100 + i))) for i in range(5)] == [-1] * 5
    assert space.nbytes == before


def test_a_new_table_is_made_without_the_lock(words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that meets a new mask waits for the lock."""
    space = TokenSpace.of(words)
    free, make = list[bool](), words.charset_table

    def charset_table(charset: CharSet) -> object:
        def look() -> None:
            if space.lock.acquire(timeout=60):
                free.append(True)
                space.lock.release()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(90)
        return make(charset)

    monkeypatch.setattr(words, "charset_table", charset_table)
    charset = CharSet.of((99, 107), (110, 113))
    number = space.charset_number(charset)
    assert number >= 0 and free == [True]
    assert space.charset_number(charset) == number and free == [True], "made once"


def test_full_tables_of_character_sets(words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets that have no tables, or no room for their exit words, are walked, and the masks are the same."""
    patterns = [*(f"[a-{chr(c)}]{{1,60}}abc" for c in range(100, 120)), *(f"[^{chr(c)}]*a" for c in range(97, 110))]
    known = [Index.from_regex(pattern, words) for pattern in patterns]
    trie = len(words.trie.byte)
    for sizes in ({"MAX_CHARSETS": 3}, {"_TRIE_NODES": trie + 3000}, {"_TRIE_NODES": trie + 12000}):
        vocabulary = copy_of(words)
        space = space_of(vocabulary, monkeypatch, **sizes)
        indexes = [Index.from_regex(pattern, vocabulary) for pattern in patterns]
        rows, failures = mask_rows([index.guide() for index in indexes for _ in range(3)])
        assert not failures, json.dumps(sizes)
        for i, row in enumerate(rows.tolist()):
            one = known[i // 3]
            assert np.array_equal(space.rows[row], one.masks[one.guide().mask_row])
        assert len(space._numbers) < len(patterns)
        monkeypatch.undo()


def always_worth(new: Sequence[tuple[int, CharSet, int]], *_: object) -> set[int]:
    return {i for i, _, _ in new}


def test_tables_of_character_sets_are_freed_least_used_first(
    words: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the first sets kept their tables, and every later set was walked for ever."""
    vocabulary = copy_of(words)
    monkeypatch.setattr(token_space, "worth_tables", always_worth)
    space = space_of(vocabulary, monkeypatch, MAX_CHARSETS=16)
    kept = Index.from_regex("[^é]*a", vocabulary)  # used all the time
    patterns = [f"[^{chr(c)}]*a" for c in range(0x100, 0x180)]
    indexes = []
    for i, pattern in enumerate(patterns):
        indexes.append(Index.from_regex(pattern, vocabulary))
        guide = kept.guide()
        assert guide.advance(words.encode(b"c")[0]) and guide.mask_row and len(kept.charset_numbers()) == 1
        if i % 3 == 0:
            assert len(indexes[-1].charset_numbers()) == 1, "the newest has a table"
    assert len(space._numbers) <= 16 and space.times_freed > 3
    assert space._nodes.used < 40 * len(words.trie.byte), "and what they took of the tries comes back"
    assert not any(len(index.charset_numbers()) for index in indexes[:-16]), "the first ones walk now"
    for pattern, index in zip(patterns, indexes, strict=True):  # ... and allow what they allowed before
        fresh = Index.from_regex(pattern, words).guide()
        guide = index.guide()
        for byte in (words.encode(bytes([byte]))[0] for byte in b"xyz"):
            assert guide.advance(byte) and fresh.advance(byte)
            assert np.array_equal(space.rows[guide.mask_row], fresh.index.masks[fresh.mask_row])
    again = Index.from_bytes(indexes[0].to_bytes(), vocabulary)
    assert np.array_equal(space.rows[again.guide().mask_row], space.rows[indexes[0].guide().mask_row])


def test_tables_are_freed_under_threads(words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are compiled, walked, saved and loaded while the tables change hands."""
    vocabulary = copy_of(words)
    monkeypatch.setattr(token_space, "worth_tables", always_worth)
    space = space_of(vocabulary, monkeypatch, MAX_CHARSETS=8)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        rng = Random(seed)
        try:
            for _ in range(60):
                pattern = f"[^{chr(0x100 + rng.randrange(40))}]{{1,{rng.randrange(3, 90)}}}x"
                index = Index.from_regex(pattern, vocabulary)
                if rng.random() < 0.3:
                    index = Index.from_bytes(index.to_bytes(), vocabulary)
                guide, fresh = index.guide(), Index.from_regex(pattern, words).guide()
                for byte in (words.encode(bytes([byte]))[0] for byte in rng.choices(b"abx ", k=rng.randrange(1, 8))):
                    assert guide.advance(byte) == fresh.advance(byte)
                    assert np.array_equal(index.masks[guide.mask_row], fresh.index.masks[fresh.mask_row]), pattern
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert space.times_freed > 10


def test_ranges_give_what_is_free(words: Vocabulary) -> None:
    rng, taken = Random(1), dict[int, int]()
    ranges = Ranges(1000)
    for _ in range(5000):
        size = rng.randrange(1, 120)
        if rng.random() < 0.5 and taken:
            start = rng.choice([*taken])
            ranges.give(start, taken.pop(start))
        elif (start := ranges.take(size)) >= 0:
            assert start + size <= 1000
            assert all(start + size <= other or start >= other + length for other, length in taken.items())
            taken[start] = size
        assert ranges.used == sum(taken.values())
    for start, size in taken.items():
        ranges.give(start, size)
    assert ranges.take(1000) == 0


def test_threads_choose_tables_at_once() -> None:
    """They share the sets that were passed over."""
    passed: token_space.PassedOver = {}
    errors = list[Exception]()

    def choose(seed: int) -> None:
        random = Random(seed)
        for _ in range(2000):
            first = [random.randrange(0x80, 0x10000) for _ in range(3)]
            new = [(i, CharSet.of((low, low + random.randrange(1, 50))), 1) for i, low in enumerate(first)]
            try:
                token_space.worth_tables(new, lambda: (), lambda charset: (10, 100_000), passed)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=choose, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_passed_over_sets_are_bounded_by_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: token_space.PassedOver = {}
    for i in range(40):
        charset = CharSet.of(*((0x1000 + 100 * i + 2 * k, 0x1000 + 100 * i + 2 * k) for k in range(40)))
        token_space.worth_tables([(0, charset, 1)], lambda: (), lambda charset: (10, 100_000), passed)
        if i == 9:
            assert len(passed) == 10
            monkeypatch.setattr(token_space, "_MOST_PASSED_RANGES", 500)
    assert sum(len(charset.ranges) for charset in passed) <= 540
