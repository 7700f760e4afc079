"""The flat trie and the string sort against Python's ``sorted``."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dotllm.vocabulary import build_trie
from dotllm.vocabulary.trie import SMALL_RUN, sort_strings
from tests.vocabulary.oracles import grouped, trie_strings

few_bytes = st.binary(max_size=20) | st.text("ab", max_size=24).map(str.encode) | st.integers(0, 30).map(b"a".__mul__)


def packed(strings: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.array([len(s) for s in strings], np.int32)
    starts = (np.cumsum(lengths) - lengths).astype(np.int32)
    return np.frombuffer(bytearray(b"".join(strings)), np.uint8), starts, lengths


@given(st.lists(few_bytes, max_size=4 * SMALL_RUN))
def test_sort_equals_pythons_and_is_stable(strings: list[bytes]) -> None:
    assert sort_strings(*packed(strings)).tolist() == sorted(range(len(strings)), key=strings.__getitem__)


def test_sort_of_long_runs_of_equal_prefixes() -> None:
    rng = np.random.default_rng(1)
    strings = [b"x" * int(n) + bytes(rng.integers(0, 2, 9).astype(np.uint8)) for n in rng.integers(0, 30, 5000)]
    assert sort_strings(*packed(strings)).tolist() == sorted(range(len(strings)), key=strings.__getitem__)


@given(st.lists(few_bytes.filter(bool), max_size=60))
def test_trie_holds_exactly_the_strings(strings: list[bytes]) -> None:
    ids = np.arange(len(strings), dtype=np.int32) + 7
    trie = build_trie(*packed(strings), ids)
    assert trie_strings(trie) == grouped([(s, i + 7) for i, s in enumerate(strings)])
    assert [array.dtype for array in trie] == [np.uint8, np.int32, np.int32, np.int32, np.int32]
    assert all(array.flags.c_contiguous and array.flags.writeable for array in trie)


def test_layout_of_a_small_trie() -> None:
    trie = build_trie(*packed([b"b", b"ab", b"a", b"ab", b"acd"]), np.array([0, 1, 2, 3, 4], np.int32))
    assert bytes(trie.byte) == b"abcdb"
    assert trie.depth.tolist() == [1, 2, 2, 3, 1]
    assert trie.end.tolist() == [4, 2, 4, 4, 5]
    assert trie.token_start.tolist() == [0, 1, 3, 3, 4, 5]
    assert trie.tokens.tolist() == [2, 1, 3, 4, 0]
