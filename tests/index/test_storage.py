"""Saved indexes come back warm, and a file that is not exactly right is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import layout as at
from dotllm.charset import CharSet
from dotllm.index import storage, token_space

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"enum": ["x", "yy"]}},
    "required": ["a"],
}
TEXT = '{"a": "hello", "b": "yy"}'


def rows(index: Index) -> list[bytes]:
    guide = index.guide()
    out = []
    for token in index.vocabulary.encode(TEXT.encode()):
        out.append(index.masks[guide.mask_row].tobytes())
        assert guide.advance(token)
    assert guide.can_finish
    return out


def test_round_trip_is_warm(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    before = rows(index)
    index.save(tmp_path / "i")
    again = Index.load(tmp_path / "i", bytes_vocabulary)
    visited = (again.states, again.configurations)
    assert visited == (index.states, index.configurations)
    assert rows(again) == before
    assert (again.states, again.configurations) == visited


def test_many_threads_save_to_one_file(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    """Each thread writes a temporary file of its own; once all of these had the same name."""
    index, whole = Index.from_regex("[a-z]+", bytes_vocabulary), tmp_path / "i"
    index.save(whole)

    def save(_: int) -> None:
        index.save(whole)
        Index.load(whole, bytes_vocabulary)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(300)))
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_a_failed_save_leaves_nothing(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    (tmp_path / "i" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="i"):
        Index.from_regex("a", bytes_vocabulary).save(tmp_path / "i")
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_masks_get_the_numbers_that_they_have_here(bytes_vocabulary: Vocabulary) -> None:
    """A file counts them from zero; in this process, other indexes came first."""
    for pattern in ("[0-9]+x", "(yes|no)[a-f]"):
        assert Index.from_regex(pattern, bytes_vocabulary).guide().mask_row > 0
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    before = rows(index)
    again = Index.from_bytes(index.to_bytes(), bytes_vocabulary)
    assert rows(again) == before


def test_an_index_of_many_states(bytes_vocabulary: Vocabulary) -> None:
    """Its tables are larger than those of a small index: every word is found again, and no other."""
    words = [f"{number * 7919 % 10000:04}{number}" for number in range(700)]
    index = Index.from_choice(words, bytes_vocabulary)
    for word in words:
        assert index.advance_bytes(index.guide().config, word.encode()) >= 0
    again = Index.from_bytes(index.to_bytes(), bytes_vocabulary)
    assert again.states == index.states > 2000
    for word in words:
        for text, found in ((word, True), (word[:-1] + "x", False), (word + "0", word + "0" in words)):
            config = again.advance_bytes(again.guide().config, text.encode())
            assert (config >= 0 and again.can_finish(config)) == found
    assert again.states == index.states


def test_bytes_are_what_a_file_holds(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    before = rows(index)
    index.save(tmp_path / "i")
    assert index.to_bytes() == (tmp_path / "i").read_bytes()
    assert rows(Index.from_bytes(index.to_bytes(), bytes_vocabulary)) == before
    with pytest.raises(ValueError, match="damaged"):
        Index.from_bytes(index.to_bytes()[:-1], bytes_vocabulary)


def test_the_shortest_ways_are_saved_once_found(bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    without = index.to_bytes()
    assert Index.from_bytes(without, bytes_vocabulary).mem[at.H_HAS_WAYS] == 0
    needed = index.tokens_to_finish()
    again = Index.from_bytes(index.to_bytes(), bytes_vocabulary)
    assert again.mem[at.H_HAS_WAYS] == 1 and again.renewed().mem[at.H_HAS_WAYS] == 1
    assert len(index.to_bytes()) - len(without) < 5 * 4 * int(index.mem[at.H_NODES]) + 100
    index.mem[index.mem[at.H_WAY_AFTER] : index.mem[at.H_WAY_AFTER] + index.mem[at.H_NODES]] = 1 << 20
    assert again.tokens_to_finish() == needed
    with pytest.raises(ValueError, match="damaged"):
        Index.from_bytes(index.to_bytes(), bytes_vocabulary)


def test_a_loaded_index_goes_on_growing(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    Index.from_json_schema(SCHEMA, bytes_vocabulary).save(tmp_path / "i")
    assert rows(Index.load(tmp_path / "i", bytes_vocabulary)) == rows(Index.from_json_schema(SCHEMA, bytes_vocabulary))


def test_another_process_numbers_rows_differently(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    expected = rows(index)
    index.save(tmp_path / "i")
    tokens = [bytes_vocabulary.token_bytes(t) for t in range(bytes_vocabulary.size)]
    twin = Vocabulary.from_bytes(tokens, bytes_vocabulary.eos_token_ids, bytes_vocabulary.special_tokens)
    Index.from_regex("[0-9]+", twin).guide().allowed_tokens()  # takes the first row numbers of the other token space
    assert rows(Index.load(tmp_path / "i", twin)) == expected


@pytest.mark.parametrize("where", [0, 9, 40, -1, -200])
def test_damage_is_refused(where: int, tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    path = tmp_path / "i"
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    rows(index)
    index.save(path)
    raw = bytearray(path.read_bytes())
    raw[where] ^= 0x40
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="index"):
        Index.load(path, bytes_vocabulary)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
def test_half_a_file_is_refused(keep: float, tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    path = tmp_path / "i"
    Index.from_json_schema(SCHEMA, bytes_vocabulary).save(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep if keep > 1 else keep * len(raw))])
    with pytest.raises(ValueError, match="index"):
        Index.load(path, bytes_vocabulary)


def test_another_vocabulary_is_refused(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    Index.from_json_schema(SCHEMA, bytes_vocabulary).save(tmp_path / "i")
    other = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])
    with pytest.raises(ValueError, match="another vocabulary: make it again"):
        Index.load(tmp_path / "i", other)


def test_save_changes_nothing(tmp_path: Path, bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, bytes_vocabulary)
    expected = rows(index)
    copy = index.mem.copy()
    index.save(tmp_path / "i")
    assert np.array_equal(copy, index.mem)
    assert rows(index) == expected


def test_character_sets_keep_their_tables(bytes_vocabulary: Vocabulary) -> None:
    """Sets keep their tables whatever their numbers are, and a set without a table has none after loading."""
    schema = {
        "items": {"type": "string"},
        "contains": {"pattern": "^[a-f]*$"},
        "prefixItems": [{"pattern": "[^x]{40}"}],
    }
    index = Index.from_json_schema(schema, bytes_vocabulary)

    def sets(index: Index) -> list[CharSet | None]:
        mem, numbers = index.mem, {index.space.known_charset(c): c for c in index.charsets}
        numbers.pop(-1, None)
        return [numbers.get(int(n)) for n in mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + mem[at.H_NODES]]]

    expected = sets(index)
    assert any(expected) and None in expected
    strange = CharSet(((0x2FF00, 0x2FF01),))
    index.charsets[:] = [strange, *index.charsets[::-1], strange]
    assert index.space.known_charset(strange) < 0
    tokens = [bytes_vocabulary.token_bytes(t) for t in range(bytes_vocabulary.size)]
    elsewhere = Vocabulary.from_bytes(tokens, bytes_vocabulary.eos_token_ids, bytes_vocabulary.special_tokens)
    assert sets(Index.from_bytes(index.to_bytes(), elsewhere)) == expected


def test_the_lock_is_held_only_for_a_copy_of_the_results(bytes_vocabulary: Vocabulary) -> None:
    """An engine's loop may wait for the lock."""
    index = Index.from_regex("(?:[a-z]{1,99}[a-y]{1,99}){4}", bytes_vocabulary)
    before = index.result_bytes
    guide = index.guide()
    for _ in range(40):
        _ = guide.mask_row
        guide.advance(97)
    assert before < index.result_bytes < index.nbytes
    saved = storage.snapshot(index.mem)
    assert sum(region.nbytes for region in saved.regions.values()) == index.result_bytes
    assert all(region.base is None for region in saved.regions.values()), "views would change while the file is made"
    assert saved.charset_numbers.base is None
    assert np.shares_memory(saved.nfa, index.mem), "it does not change, and may be 90 MB"


def test_rows_are_entered_a_few_at_a_time(bytes_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that meets a new mask waits for the lock. Rows that nothing refers to may be freed between the parts."""
    sets = [f"[{chr(97 + i % 26)}-z0-{i % 10}]" for i in range(120)]
    text = b"z" * len(sets)

    def rows_of(index: Index) -> list[bytes]:
        guide, rows = index.guide(), []
        for token in text:
            rows.append(index.masks[guide.mask_row].tobytes())
            assert guide.advance(token)
        return rows

    other = Index.from_regex("".join(f"[!{part[1:]}" for part in sets), bytes_vocabulary)  # has the first numbers
    index = Index.from_regex("".join(sets), bytes_vocabulary)
    assert len({*rows_of(other), *rows_of(index)}) > 200
    expected, data, space = rows_of(index), index.to_bytes(), index.space
    del index
    for _ in range(3):
        space.collect()
    enter, parts, collectors, lock = token_space.intern_rows, list[int](), list[threading.Thread](), space.lock

    class Lock:
        """After each part, a thread collects rows, if the lock of the index lets it."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            if len(collectors) < len(parts) and threading.current_thread() is threading.main_thread():
                collectors.append(threading.Thread(target=lambda: [space.collect() for _ in range(3)]))
                collectors[-1].start()
                collectors[-1].join(0.3)

    def intern_rows(*arguments: Any) -> Any:
        parts.append(len(arguments[-1]))
        return enter(*arguments)

    monkeypatch.setattr(token_space, "intern_rows", intern_rows)
    monkeypatch.setattr(space, "lock", Lock())
    loaded = Index.from_bytes(data, bytes_vocabulary)
    monkeypatch.undo()
    assert len(collectors) == len(parts)
    for thread in collectors:
        thread.join()
    assert max(parts) <= 32 and sum(parts) > 100
    assert rows_of(loaded) == expected
