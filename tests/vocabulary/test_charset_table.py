"""Charset tables against a token-by-token decoding in Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.vocabulary import CharsetTable, Vocabulary
from dotllm.vocabulary.charset_table import COUNTED
from tests.vocabulary.oracles import charset_facts, grouped, trie_strings

JSON_STRING = ~CharSet.of((0, 0x1F), '"\\')
CHARSETS = {
    "any": ANY_CHAR,
    "json string": JSON_STRING,
    "not newline": ~CharSet.of("\n"),
    "a-z": CharSet.of((0x61, 0x7A)),
    "space": CharSet.of(" "),
    "Greek and Cyrillic": CharSet.of((0x370, 0x52F)),
    "emoji": CharSet.of((0x1F600, 0x1F64F)),
    "from three to four bytes": CharSet.of((0xFF00, 0x10FFF)),
    "last code point": CharSet.of(0x10FFFF),
    "every other": CharSet(tuple((c, c) for c in range(0x20, 0x3000, 2))),
    "none": CharSet(()),
}


def members(row: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def check(vocabulary: Vocabulary, tokens: list[bytes | None], charset: CharSet, table: CharsetTable) -> None:
    facts = charset_facts(tokens, charset)
    assert table.rows.shape == (COUNTED + 1, vocabulary.words) and table.rows.dtype == np.int32
    assert members(table.rows[0]) == sorted(facts.inside)
    for k in range(1, COUNTED + 1):
        assert members(table.rows[k]) == sorted(t for t, chars in facts.inside.items() if chars <= k)
    long = list(zip(table.long_tokens.tolist(), table.long_chars.tolist(), strict=True))
    assert sorted(long) == sorted((t, chars) for t, chars in facts.inside.items() if chars > COUNTED)
    assert table.long_chars.tolist() == sorted(table.long_chars.tolist(), reverse=True)
    assert table.max_chars == max(facts.inside.values(), default=0)

    def strings(*found: tuple[bytes, list[int]]) -> dict[bytes, list[int]]:
        return {text: sorted(ids) for text, ids in found}

    assert strings(*trie_strings(table.exits).items()) == grouped([(rest, t) for t, (_, rest) in facts.exits.items()])
    words = [(tokens[t] or b"", t) for t in facts.exits]
    assert strings(*trie_strings(vocabulary.exit_words(charset)).items()) == grouped(words)
    start = table.exits_by_count_start
    j_max = max((j for j, _ in facts.exits.values()), default=0)
    assert len(start) == j_max + 2 and start[0] == 0 and start[-1] == len(table.exits_by_count.byte)
    for j in range(j_max + 1):
        expected = grouped([(rest, t) for t, (count, rest) in facts.exits.items() if count == j])
        found = trie_strings(table.exits_by_count, int(start[j]), int(start[j + 1]))
        assert strings(*found.items()) == expected


pieces = st.sampled_from(["a", "z", " ", '"', "\\", "\n", "é", "Ж", "\uffff", "中", "😀", "\U0010ffff", "0"])
texts = st.lists(pieces, min_size=1, max_size=6).map("".join).map(str.encode)
cut = st.tuples(texts, st.integers(0, 3), st.integers(0, 3)).map(lambda t: t[0][t[1] : len(t[0]) - t[2]])
tokens_strategy = st.lists(st.none() | cut | texts | st.binary(max_size=4) | st.integers(14, 20).map(b"a".__mul__))
charsets = st.sampled_from(list(CHARSETS.values())) | st.lists(
    st.sampled_from([0, 0x20, 0x61, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]),
    min_size=2,
    max_size=6,
).map(lambda points: CharSet.of(*zip(sorted(points)[::2], sorted(points)[1::2], strict=False)))
wide_charsets = st.text(alphabet='az "\\\n0\x7f').map(lambda text: ~CharSet.of(text))


@given(tokens_strategy, charsets | wide_charsets)
def test_small_vocabularies(tokens: list[bytes | None], charset: CharSet) -> None:
    vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=len(tokens))
    check(vocabulary, tokens, charset, vocabulary.charset_table(charset))


@pytest.mark.parametrize("charset", CHARSETS.values(), ids=CHARSETS.keys())
def test_every_short_byte_string(charset: CharSet) -> None:
    """All strings of two bytes from the edges of the UTF-8 table (RFC 3629 §4), after "a" and alone."""
    edges = [0x00, 0x20, 0x61, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xCD, 0xD4, 0xDF]
    edges += [0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    pairs = [bytes([a, b]) for a in edges for b in edges]
    tokens: list[bytes | None] = [*pairs, *(b"a" + pair for pair in pairs), *(pair + b"\x80" for pair in pairs)]
    vocabulary = Vocabulary.from_bytes(tokens, eos_token_ids=[])
    check(vocabulary, tokens, charset, vocabulary.charset_table(charset))
