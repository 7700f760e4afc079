"""Tables in memory, tries and tables on disk."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.vocabulary import CharsetTable, Vocabulary
from dotllm.vocabulary import files as files_module
from dotllm.vocabulary import vocabulary as vocabulary_module
from dotllm.vocabulary.charset_table import TableCache
from dotllm.vocabulary.vocabulary import is_popular, popular_charsets, word_characters

SMALL = Vocabulary.from_bytes([b"a", b"b", b"ab", b"\xc3", None], 4)
NBYTES = SMALL.charset_table(ANY_CHAR).nbytes


def sets(n: int) -> list[CharSet]:
    return [CharSet.of(0x1000 + i) for i in range(n)]  # none of their characters is in the vocabulary: equal sizes


def build(charset: CharSet) -> CharsetTable:
    return SMALL._table(charset)


class TestInMemory:
    def test_least_recently_used_goes_first(self) -> None:
        built: list[CharSet] = []
        size = build(sets(1)[0]).nbytes

        def counted(charset: CharSet) -> CharsetTable:
            built.append(charset)
            return build(charset)

        cache = TableCache(counted, limit=3 * size)
        a, b, c, d = sets(4)
        for charset in (a, b, c, a, d):
            cache.get(charset)
        assert built == [a, b, c, d] and len(cache) == 3 and cache.nbytes == 3 * size
        cache.get(a), cache.get(c), cache.get(d)
        assert built == [a, b, c, d]
        cache.get(b)
        assert built == [a, b, c, d, b]

    def test_what_is_in_use_stays(self) -> None:
        size = build(sets(1)[0]).nbytes
        cache = TableCache(build, limit=2 * size)
        charsets = sets(6)
        used = [cache.get(charset) for charset in charsets[:3]]
        for charset in charsets[3:]:
            cache.get(charset)
        assert all(cache.get(charset) is table for charset, table in zip(charsets, used, strict=False))
        assert cache.nbytes == len(cache) * size <= 4 * size
        del used
        cache.get(charsets[5]), cache.get(charsets[4])
        assert cache.nbytes <= 2 * size

    def test_one_table_is_built_once_for_all_threads(self) -> None:
        built: list[CharSet] = []

        def slow(charset: CharSet) -> CharsetTable:
            built.append(charset)
            time.sleep(0.02)
            return build(charset)

        cache = TableCache(slow)
        found: list[CharsetTable] = []
        threads = [threading.Thread(target=lambda: found.append(cache.get(ANY_CHAR))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert built == [ANY_CHAR] and len(found) == 8 and all(table is found[0] for table in found)

    def test_a_build_that_fails_leaves_nothing(self) -> None:
        def failing(charset: CharSet) -> CharsetTable:
            raise MemoryError

        cache = TableCache(failing)
        for _ in range(2):
            with pytest.raises(MemoryError):
                cache.get(ANY_CHAR)
        assert len(cache) == 0


def same(a: CharsetTable, b: CharsetTable) -> bool:
    return all(
        all(map(np.array_equal, x, y)) if isinstance(x, tuple) else np.array_equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """Enough tokens for a file, with a cache directory for each test."""
    monkeypatch.setenv("DOTLLM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(vocabulary_module, "_WORTH_A_FILE", 100)
    return [b"%x" % (i * i) for i in range(300)] + ["é中".encode()]


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class TestOnDisk:
    def test_second_vocabulary_is_read(
        self, tokens: list[bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Vocabulary.from_bytes(tokens, 0)
        table = made.charset_table(ANY_CHAR)
        assert len(files(tmp_path)) == 2
        monkeypatch.setattr(vocabulary_module, "build_trie", None)
        monkeypatch.setattr(vocabulary_module, "build_charset_table", None)
        read = Vocabulary.from_bytes(tokens, 0)
        assert all(map(np.array_equal, read.trie, made.trie))
        assert same(read.charset_table(ANY_CHAR), table)

    def test_only_popular_sets_are_kept(self, tokens: list[bytes | None], tmp_path: Path) -> None:
        made = Vocabulary.from_bytes(tokens, 0)
        made.charset_table(CharSet.of("xyz"))
        assert len(files(tmp_path)) == 1
        made.prepare()
        assert len(files(tmp_path)) == 1 + len(popular_charsets())

    def test_another_content_or_layout_is_another_file(
        self, tokens: list[bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Vocabulary.from_bytes(tokens, 0)
        Vocabulary.from_bytes([*tokens, b"more"], 0)
        monkeypatch.setattr(files_module, "LAYOUT", files_module.LAYOUT + 1)
        Vocabulary.from_bytes(tokens, 0)
        assert len(files(tmp_path)) == 3

    def test_damaged_file_is_replaced(
        self, tokens: list[bytes | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = Vocabulary.from_bytes(tokens, 0)
        made.charset_table(ANY_CHAR)
        good = [path.read_bytes() for path in files(tmp_path)]
        for path, data in zip(files(tmp_path), good, strict=True):
            path.write_bytes(data[:-3])
        with caplog.at_level(logging.WARNING):
            again = Vocabulary.from_bytes(tokens, 0)
            assert same(again.charset_table(ANY_CHAR), made.charset_table(ANY_CHAR))
        assert len(caplog.records) == 2
        assert all(map(np.array_equal, again.trie, made.trie))
        assert [path.read_bytes() for path in files(tmp_path)] == good

    def test_file_of_another_vocabulary_is_ignored(self, tokens: list[bytes | None], tmp_path: Path) -> None:
        Vocabulary.from_bytes(tokens, 0)
        (mine,) = files(tmp_path)
        data = mine.read_bytes()
        other = Vocabulary.from_bytes([*tokens, b"more"], 0)
        (place,) = set(files(tmp_path)) - {mine}
        place.write_bytes(data)
        again = Vocabulary.from_bytes([*tokens, b"more"], 0)
        assert all(map(np.array_equal, again.trie, other.trie))

    def test_unwritable_place_is_no_error(
        self, tokens: list[bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("DOTLLM_CACHE_DIR", str(tmp_path / "file"))
        assert Vocabulary.from_bytes(tokens, 0).charset_table(ANY_CHAR).max_chars > 0


def test_word_characters_are_those_of_re() -> None:
    words = word_characters()
    for code_point in [*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFF00, 0x10400), 0x10FFFF]:
        expected = chr(code_point).isalnum() or code_point == 0x5F
        assert (code_point in words) == (expected and not 0xD800 <= code_point <= 0xDFFF), hex(code_point)
    assert is_popular(words) and not is_popular(words - CharSet.of("_")) and not is_popular(CharSet.of("ab"))
