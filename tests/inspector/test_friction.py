"""What masks took away, against the whole distribution."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dotllm import Index, Vocabulary
from dotllm.inspector.friction import taken

VOCABULARY = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
INDEX = Index.from_regex("[0-4][ab]c*", VOCABULARY)


@given(st.lists(st.floats(0, 5), min_size=257, max_size=257), st.integers(1, 40))
def test_bounds_hold_the_truth(weights: list[float], likeliest: int) -> None:
    total = sum(map(math.exp, weights))
    whole = {token: weight - math.log(total) for token, weight in enumerate(weights)}
    first = dict(sorted(whole.items(), key=lambda item: -item[1])[:likeliest])
    text = b"2bcc"
    ways = (b"01234", b"ab", b"c\x00", b"c\x00")
    found = taken(INDEX, list(text), [first] * 5)
    assert len(found) == len(text)
    for (least, most), way in zip(found, ways, strict=True):
        kept = sum(math.exp(whole[256 if byte == 0 else byte]) for byte in way)
        assert least - 1e-9 <= 1 - kept <= most + 1e-9
    assert all(abs(most - least) < 1e-9 for least, most in taken(INDEX, list(text), [whole] * 4))


def test_it_ends_where_the_text_does_not_fit() -> None:
    assert len(taken(INDEX, [ord("9"), ord("a")], [{ord("1"): 0.0}] * 2)) == 1
    assert taken(INDEX, [ord("1")], [{ord("1"): 0.0}]) == [(0.0, 0.0)]
    assert taken(INDEX, [ord("1")], [{ord("x"): 0.0}]) == [(1.0, 1.0)]
