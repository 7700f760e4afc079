"""What callers hand in is looked at before anything is done with it: a wrong array is an error, not memory of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.index import advance_guides, fill_masks, mask_rows

UNIQUE = {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}
GUARD = 7  # words around a bitmask that nobody may write to


@pytest.fixture(params=["new", "known", "remembering"])
def guides(request: pytest.FixtureRequest, bytes_vocabulary: Vocabulary) -> list[Guide]:
    """Three guides whose masks are unknown, or known, or their own: each takes another way through the code."""
    if request.param == "remembering":
        return [Index.from_json_schema(UNIQUE, bytes_vocabulary).guide() for _ in range(3)]
    made = [Index.from_regex(f"[a-{c}]+{c}", bytes_vocabulary).guide() for c in "xyz"]
    if request.param == "known":
        assert not mask_rows(made)[1]
    return made


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


WORDS = 9  # of `bytes_vocabulary`
BITMASKS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "int64": (lambda: np.zeros((3, WORDS), np.int64), TypeError, "int64"),
    "float32": (lambda: np.zeros((3, WORDS), np.float32), TypeError, "float32"),
    "uint32": (lambda: np.zeros((3, WORDS), np.uint32), TypeError, "uint32"),
    "other byte order": (lambda: np.zeros((3, WORDS), ">i4"), TypeError, "int32"),
    "one dimension": (lambda: np.zeros(3 * WORDS, np.int32), ValueError, r"\[27\]"),
    "three dimensions": (lambda: np.zeros((3, WORDS, 1), np.int32), ValueError, r"\[3, 9, 1\]"),
    "too narrow": (lambda: np.zeros((3, WORDS - 1), np.int32), ValueError, r"\[3, 8\]"),
    "no words": (lambda: np.zeros((3, 0), np.int32), ValueError, r"\[3, 0\]"),
    "columns first": (lambda: np.zeros((3, WORDS), np.int32, order="F"), ValueError, "not contiguous"),
    "a view": (lambda: np.zeros((3, 2 * WORDS), np.int32)[:, ::2], ValueError, "not contiguous"),
    "read-only": (lambda: read_only(np.zeros((3, WORDS), np.int32)), ValueError, "read-only"),
    "a list": (lambda: [[0] * WORDS] * 3, TypeError, "list"),
    "nothing": (lambda: None, TypeError, "NoneType"),
}


@pytest.mark.parametrize("name", BITMASKS)
def test_bitmasks(name: str, guides: list[Guide], bytes_vocabulary: Vocabulary) -> None:
    assert bytes_vocabulary.words == WORDS
    make, error, found = BITMASKS[name]
    bitmask = make()
    with pytest.raises(error, match=found) as caught:
        fill_masks(guides, bitmask)
    assert f"int32 array [rows, at least {WORDS}] is wanted" in str(caught.value)
    if isinstance(bitmask, np.ndarray):
        assert not bitmask.any()
    if name in ("columns first", "a view"):
        guides[0].write_mask(bitmask, 1)
        assert bitmask[1].any() and not bitmask[[0, 2]].any()
        return
    with pytest.raises(error, match=found) as caught:
        guides[0].write_mask(bitmask)
    assert f"int32 array [rows, at least {WORDS}] is wanted" in str(caught.value)


TARGETS: dict[str, tuple[Any, type[Exception], str]] = {
    "behind the end": ([0, 1, 5], IndexError, "row 5 in a bitmask of 5"),
    "before the beginning": ([0, -1, 2], IndexError, "row -1"),
    "beyond int32": ([0, 1, 2**32], IndexError, "row 4294967296"),
    "beyond int32, as an array": (np.array([0, 1, 2**32 + 2]), IndexError, "row 4294967298"),
    "twice the same": ([3, 1, 3], ValueError, "same row"),
    "too few": ([0, 1], ValueError, "3 guides"),
    "too many": ([0, 1, 2, 3], ValueError, "3 guides"),
    "none": ([], ValueError, "3 guides"),
    "fractions": ([0.0, 1.0, 2.0], TypeError, "float64"),
    "truths": ([True, False, True], TypeError, "bool"),
    "two dimensions": ([[0, 1, 2]], ValueError, "dimension"),
    "names": (["0", "1", "2"], TypeError, "U1"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets(name: str, guides: list[Guide]) -> None:
    targets, error, found = TARGETS[name]
    bitmask = np.full((5 + 2 * GUARD, WORDS), GUARD, np.int32)
    with pytest.raises(error, match=found):
        fill_masks(guides, bitmask[GUARD:-GUARD], targets)
    assert (bitmask == GUARD).all(), "nothing is written"


@pytest.mark.parametrize("kind", [list, tuple, np.int64, np.int32, np.uint8, "strided", "read-only"])
def test_targets_of_all_kinds(kind: Any, guides: list[Guide]) -> None:
    targets: Any = np.array([4, 0, 2])
    if kind == "strided":
        targets = np.repeat(targets, 2)[::2]
    elif kind == "read-only":
        targets = read_only(targets)
    else:
        targets = kind(targets.tolist())
    bitmask, expected = np.zeros((2, 5, WORDS + 2), np.int32)
    assert not fill_masks(guides, bitmask, targets)
    for guide, row in zip(guides, (4, 0, 2), strict=True):
        guide.write_mask(expected, row)
    assert np.array_equal(bitmask, expected) and bitmask[[0, 2, 4]].any(axis=1).all()


def test_a_bitmask_of_too_few_rows(guides: list[Guide]) -> None:
    with pytest.raises(IndexError, match="row 2 in a bitmask of 2"):
        fill_masks(guides, np.zeros((2, WORDS), np.int32))
    for row in (-1, 2, 2**40):
        with pytest.raises(IndexError, match=f"row {row} in a bitmask of 2"):
            guides[0].write_mask(np.zeros((2, WORDS), np.int32), row)
    with pytest.raises(TypeError):
        guides[0].write_mask(np.zeros((2, WORDS), np.int32), 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([97, 97], ValueError),
        ([97] * 4, ValueError),
        ([97.0] * 3, TypeError),
        (np.array([97.5] * 3, np.float32), TypeError),
        (["a"] * 3, TypeError),
        ([[97]] * 3, ValueError),
    ],
)
def test_tokens(tokens: Any, error: type[Exception], guides: list[Guide]) -> None:
    before = [guide.config for guide in guides]
    with pytest.raises(error):
        advance_guides(guides, tokens)
    assert [guide.config for guide in guides] == before and not any(guide.tokens_taken for guide in guides)
    with pytest.raises(TypeError):
        guides[0].advance(97.5)  # type: ignore[arg-type]


def test_tokens_of_all_kinds(guides: list[Guide]) -> None:
    ids = [guide.allowed_tokens() for guide in guides]
    first = [min(tokens) for tokens in ids]
    for tokens in (first, np.array(first, np.int32), np.array(first, np.uint16)):
        forks = [guide.fork() for guide in guides]
        assert advance_guides(forks, tokens) == ([True] * 3, {})
    assert advance_guides(guides, [2**40, -1, 2**31 + first[2]]) == ([False] * 3, {}), "no tokens of this vocabulary"


def test_guides_of_several_vocabularies(guides: list[Guide]) -> None:
    other = Index.from_regex("[ab]+", Vocabulary.from_bytes([b"a", b"b", None], eos_token_ids=2)).guide()
    for mixed in ([*guides, other], [other, *guides]):
        with pytest.raises(ValueError, match="one vocabulary"):
            fill_masks(mixed, np.zeros((4, 2 * WORDS), np.int32))
        with pytest.raises(ValueError, match="one vocabulary"):
            mask_rows(mixed)
        with pytest.raises(ValueError, match="one vocabulary"):
            advance_guides(mixed, [0] * 4)
        assert not any(guide.tokens_taken for guide in mixed)


def test_ids_of_a_vocabulary_are_integers() -> None:
    with pytest.raises(TypeError):
        Vocabulary.from_bytes([b"a", None], eos_token_ids=[1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        Vocabulary.from_bytes([b"a", None], eos_token_ids=np.array([1.0]))  # type: ignore[arg-type]
    assert Vocabulary.from_bytes([b"a", None], eos_token_ids=np.array([1], np.int32)).eos_token_ids == (1,)
